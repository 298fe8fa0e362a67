package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/command"
)

// JSON that is printed for programs is readable for people, too, and has the same meaning.
func TestJSONIsReadable(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		`{"query":"rank \u003c 10 \u0026\u0026 \u003e"}`: `{"query":"rank < 10 && >"}`,
		`["\\u003c","\\\u003c","\u2028\"\u00e9"]`:        `["\\u003c","\\<","\u2028\"\u00e9"]`,
		`"\u003`: `"\u003`,
		`\`:      `\`,
	} {
		if got := string(readable([]byte(sent))); got != want {
			t.Errorf("%s: %s, want %s", sent, got, want)
		}
	}
	var b strings.Builder
	if err := printJSON(&b, map[string]string{"query": "a < b & c > d"}); err != nil || !strings.Contains(b.String(), `"a < b & c > d"`) {
		t.Errorf("%s, %v", b.String(), err)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := Table(&b, []string{"A", "LONG"}, [][]string{{"Zoë\tx", "1"}, {"\x1b[31mred\n", ""}}); err != nil {
		t.Fatal(err)
	}
	if want := "A        LONG\nZoë x    1\n[31mred  -\n"; b.String() != want {
		t.Errorf("%q, not %q", b.String(), want)
	}
}

// A terminal shows heads in bold and states in their colours. Data can't change a colour, and doesn't move the columns.
func TestTableOnTerminal(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	rows := [][]string{{"1", "completed", "\x1b[31mfailed"}, {"22", "held", "failed"}, {"3", "failed", "\u202e"}}
	if err := Table(&command.Visible{W: &b, Colour: true}, []string{"ID", "STATE", "ITEM"}, rows); err != nil {
		t.Fatal(err)
	}
	const want = "\x1b[1mID\x1b[m  \x1b[1mSTATE\x1b[m      \x1b[1mITEM\x1b[m\n" +
		"1   \x1b[32mcompleted\x1b[m  [31mfailed\n" +
		"22  held       failed\n" +
		"3   \x1b[31mfailed\x1b[m     \\u202e\n"
	if b.String() != want {
		t.Errorf("%q, not\n%q", b.String(), want)
	}
}

// On a terminal a list fits: prose is shortened, and what still has no room stands below its row, whole. A pipe gets all of it.
func TestTableFits(t *testing.T) {
	t.Parallel()
	heads := []string{"NAME", "HELD", "TITLE", "URL"}
	rows := [][]string{{"verify", "3", "Verify user submitted bank account", "https://a.example/0123456789"}, {"b", "", "short", ""}}
	for columns, want := range map[int]string{
		60: "NAME    HELD  TITLE             URL\nverify  3     Verify user sub…  https://a.example/0123456789\nb       -     short             -\n",
		40: "NAME    HELD  TITLE\nverify  3     Verify user submitted ban…\n  url: https://a.example/0123456789\nb       -     short\n",
		0:  "NAME    HELD  TITLE                               URL\nverify  3     Verify user submitted bank account  https://a.example/0123456789\nb       -     short                               -\n",
	} {
		var b bytes.Buffer
		if err := Table(&command.Visible{W: &b, Columns: columns}, heads, rows); err != nil || b.String() != want {
			t.Errorf("%d columns: %v\n%s, not\n%s", columns, err, b.String(), want)
		}
	}
}

// A refusal's times are the reader's.
func TestOwnTimes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	if got, want := ownTimes("held until 2026-01-31T08:00:00Z, by Ann"), "held until "+moment(&at)+", by Ann"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestDetails(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		`{"name":"Ann","n":12345678901234567890,"x":null,"in":{"a":1}}`: `name: Ann, n: 12345678901234567890, x: null, in: {"a":1}`,
		`{}`:   "",
		`null`: "null",
		`{"t":"` + strings.Repeat("é", 200) + `"}`: "t: " + strings.Repeat("é", maxDetails-4) + "…",
	} {
		if got := details(json.RawMessage(object)); got != want {
			t.Errorf("%s: %q, not %q", object, got, want)
		}
	}
}

// Data can't control the terminal, and JSON reads back as it was written.
func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain, Zoë\tand\n":      "plain, Zoë\tand\n",
		"\x1b]0;title\a":         `\u001b]0;title\u0007`,
		"\u009b31m red":          `\u009b31m red`,
		"a\x9bb":                 `a\x9bb`,
		"loan \u202e4321":        `loan \u202e4321`,
		"€ and 🎉, \xe2\x82.":     `€ and 🎉, \xe2\x82.`,
		"return\r overwrites it": `return\u000d overwrites it`,
	} {
		var b bytes.Buffer
		if n, err := fmt.Fprint(&command.Visible{W: &b}, text); err != nil || n != len(text) || b.String() != want {
			t.Errorf("%q is written as %q (%d bytes, %v), want %q", text, b.String(), n, err, want)
		}
		b.Reset()
		v := &command.Visible{W: &b}
		for i := range len(text) { // a buffer in front cuts anywhere
			if n, err := v.Write([]byte{text[i]}); err != nil || n != 1 {
				t.Fatal(n, err)
			}
		}
		if b.String() != want {
			t.Errorf("%q, byte by byte, is written as %q, want %q", text, b.String(), want)
		}
	}
	var b bytes.Buffer
	const title = "\u009b\u202e"
	if err := printJSON(&command.Visible{W: &b}, title); err != nil {
		t.Fatal(err)
	}
	var read string
	if err := json.Unmarshal(b.Bytes(), &read); err != nil || read != title {
		t.Errorf("%s is read as %q (%v)", b.String(), read, err)
	}
}
