package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

// A terminal obeys nothing that is data, and JSON is read as it was written.
func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain, Zoë\tand\n":      "plain, Zoë\tand\n",
		"\x1b]0;title\a":         `\u001b]0;title\u0007`,
		"\u009b31m red":          `\u009b31m red`,
		"a\x9bb":                 `a\x9bb`,
		"loan \u202e4321":        `loan \u202e4321`,
		"return\r overwrites it": `return\u000d overwrites it`,
	} {
		var b bytes.Buffer
		if n, err := fmt.Fprint(visible{&b}, text); err != nil || n != len(text) || b.String() != want {
			t.Errorf("%q is written as %q (%d bytes, %v), want %q", text, b.String(), n, err, want)
		}
	}
	var b bytes.Buffer
	const title = "\u009b\u202e"
	if err := printJSON(visible{&b}, title); err != nil {
		t.Fatal(err)
	}
	var read string
	if err := json.Unmarshal(b.Bytes(), &read); err != nil || read != title {
		t.Errorf("%s is read as %q (%v)", b.String(), read, err)
	}
}

// An error that was made of data can't drive the terminal.
func TestErrorsAreVisible(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if status := run([]string{"pipeline", "--user", "a", "--url", "http://127.0.0.1:1/\x1b[31m"}, &out, &errs); status == exitDone || bytes.ContainsRune(errs.Bytes(), '\x1b') {
		t.Errorf("status %d, %q", status, errs.String())
	}
}
