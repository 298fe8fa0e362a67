package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

func TestItemsCommands(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "photos", "--inbox", "--max-attempts", "1")
	c.Run(0, e2e.Text("2 items pushed to task photos\n"), "items", "push", "photos", "a/1", "b ü", "--priority", "5")
	c.Run(0, e2e.Text("1 item pushed to task photos, 1 duplicate\n"), "items", "push", "photos", "a/1", "c", "--exclusive", "album")
	c.Stdin = `{"item":"d","not_before":"2100-01-01T00:00:00Z","deadline":"2100-02-01T00:00:00Z","details":{"width":800}}` + "\n" + `{"item":"e","exclusive":"album"}`
	var pushed assign.Pushed
	c.Decode(0, &pushed, "items", "push", "photos", "-f", "-", "--priority=-1")
	if pushed != (assign.Pushed{Accepted: 2}) {
		t.Errorf("pushed %+v", pushed)
	}
	c.Stdin = `["f",{"item":""}]`
	c.Run(1, e2e.Text("standard input:1: item 2: the item has no key", "1 item pushed", "1 row is bad, of 2"), "items", "push", "photos", "-f", "-")
	c.Stdin = "[f]\r\n\n{g}\n"
	c.Run(0, e2e.Text("2 items pushed"), "items", "push", "photos", "-f", "-", "--keys-only", "--not-before", "1h")
	c.Run(1, e2e.Text("your role is worker"), "items", "push", "photos", "x", "--role", "worker")
	c.Run(1, e2e.Text("no task \"nope\"; `getwork task list` lists"), "items", "push", "nope", "x")

	c.Run(0, e2e.Text("a/1, of task photos\nIt can be handed out.", "yes, it is in the inbox, at rank 1"), "items", "show", "photos", "a/1")
	c.Run(0, e2e.Text("d, of task photos\nIt is not to be handed out before 2100", "deadline  2100-", "details   width: 800"), "items", "show", "photos", "d")
	c.Run(0, e2e.Text("It is not in the inbox", "matches   no"), "items", "show", "photos", "nope")
	c.Run(0, e2e.Text("1        photos  a/1"), "items", "claim", "photos", "a/1")
	c.Run(0, e2e.Text("1        photos  a/1", "It was yours already."), "items", "claim", "photos", "a/1")
	c.Run(1, e2e.Text("somebody else holds item \"a/1\""), "items", "claim", "photos", "a/1", "--user", "tracy")
	c.Run(1, e2e.Text("item \"nope\" does not match"), "items", "claim", "photos", "nope")
	c.Run(0, e2e.Text("1 item pushed"), "items", "push", "photos", "z")
	c.Run(0, e2e.Text("2        photos  b ü"), "get", "photos", "--user", "uma")
	c.Run(0, nil, "done", "2", "--outcome", "return", "--after", "0s", "--user", "uma")
	c.Run(0, e2e.Text("could go  uma\n"), "items", "show", "photos", "z")
	c.Run(1, e2e.Text("add --force if they are still to come"), "items", "claim", "photos", "b ü", "--to", "zoe")
	c.Run(0, e2e.Text("3        photos  b ü   zoe   held"), "items", "claim", "photos", "b ü", "--to", "zoe", "--force")
	c.Run(0, e2e.Text("3        photos  b ü   zoe   held", "It was theirs already."), "items", "claim", "photos", "b ü", "--to", "zoe")
	c.Run(1, e2e.Text("your role is worker; leave user out to claim it yourself"), "items", "claim", "photos", "b ü", "--to", "zoe", "--role", "worker")
	c.Run(2, e2e.Text("--force needs --to"), "items", "claim", "photos", "b ü", "--force")
	c.Run(0, nil, "done", "3", "--outcome", "return", "--after", "0s", "--role", "manager")
	c.Run(0, e2e.Text("a/1, of task photos\noliver holds it", "Held now:\nWORK-ID", "History, newest first:\nWORK-ID", "not for   oliver, who holds it"),
		"items", "show", "photos", "a/1")

	c.Run(0, e2e.Text("1        photos  a/1   never"), "done", "1", "--outcome", "fail", "--error", "no photo")
	c.Run(0, nil, "items", "claim", "photos", "b ü")
	c.Run(0, nil, "done", "4", "--outcome", "never")
	c.Run(0, e2e.Text("no photo"), "items", "show", "photos", "a/1")
	c.Run(1, e2e.Text("is not to be handed out again; a manager can put it back with `getwork items redrive`"), "items", "claim", "photos", "a/1")
	c.Run(0, e2e.Text("1 item of task photos put back"), "items", "redrive", "photos", "--all")
	c.Run(0, e2e.Text("1 item of task photos put back", "not set to never, and left alone: 1 item;"), "items", "redrive", "photos", "a/1", "b ü")
	c.Run(1, e2e.Text("your role is worker"), "items", "redrive", "photos", "--all", "--role", "worker")
	c.Run(0, e2e.Text("photos  a/1"), "items", "claim", "photos", "a/1")
	var e assign.Explanation
	c.Decode(0, &e, "items", "show", "photos", "a/1")
	if e.Why != assign.WhyHeld || len(e.History) != 2 {
		t.Errorf("explained %+v", e)
	}
}

// A lingering request gets an item that is pushed while it waits.
func TestLingerFromATerminal(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "photos", "--inbox")
	command, out, errs := c.Command("get", "photos", "--linger", "1m")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	e2e.Await(t, "the request waits", 30*time.Second, func() bool {
		var p assign.Pipeline
		c.Decode(0, &p, "pipeline")
		return len(p.Requests) == 1
	})
	c.Run(0, e2e.Text("AT MOST UNTIL"), "pipeline")
	c.Run(0, nil, "items", "push", "photos", "a")
	c.Expect(e2e.Text("get"), 0, e2e.Text("1        photos  a"), command.Wait(), out.String(), errs.String())
	c.Run(1, e2e.Text("nothing to do: "), "get", "photos", "--linger", "10ms")
	c.Run(1, e2e.Text("no answer yet"), "get", "photos", "--linger", "1m", "--wait", "0s")
}

// The small inputs that people's programs wrote and that getwork lost, or took for something else.
func TestPushWhatProgramsWrite(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "in", "--inbox", "--max-request", "100")
	type result struct {
		Accepted, Duplicates, Bad int
		Errors                    []struct {
			Line  int
			Error string
		}
		Warnings []struct{ Line int }
	}
	push := func(text string, args ...string) (r result) {
		t.Helper()
		c.Stdin = text
		status := 0
		if strings.Contains(text, "BAD") || strings.Contains(text, "\x00") || strings.Contains(text, `\u0000`) {
			status = 1
		}
		c.Decode(status, &r, append(e2e.Text("items", "push", "in", "-f", "-"), args...)...)
		return r
	}
	csv, ndjson := e2e.Text("--format", "csv"), e2e.Text("--format", "ndjson")
	for _, tt := range []struct {
		text     string
		args     []string
		accepted int
		bad      []int
		odd      []int
	}{
		{"item,a\rMM-1,x\rMM-2,y\r", csv, 2, nil, nil},
		{"{\"item\":\"MN-1\"}\r{\"item\":\"MN-2\"}\r", ndjson, 2, nil, nil},
		{"MK-1\rMK-2\r", nil, 2, nil, nil},
		{"item,a\nF-1,x\nF-2,b\x00d\nF-3,z\n", csv, 2, []int{3}, nil},
		{"{\"item\":\"N-1\"}\n{\"item\":\"N-2\",\"details\":{\"a\":\"\\u0000\"}}\n{\"item\":\"N-3\"}\n", ndjson, 2, []int{2}, nil},
		{"[{\"item\":\"J-1\"},\n{\"item\":\"J-2\",\"details\":{\"\\u0000\":1}},\n{\"item\":\"J-3\"}]", nil, 2, []int{2}, nil},
		{"item,not_before,ok,n,amt,arr,details\nPG-1,2026-11-29 23:56:44.414677+00,t,,1.50,\"{a,b}\",\"{\"\"a\"\": 1}\"\nBAD,2026-11-29 23:56:44,t,,,,\n", csv, 1, []int{3}, nil},
		{"item,note,,,\nEX-1,b,,,\nEX-2,c,,,\nBAD,d,,e,\n", csv, 2, []int{4}, nil},
		{"item,note\n S-2 ,hello\nS-2,again\n", csv, 2, nil, []int{2}},
		{"item\n'=1+1\n''-1\n'q\n", csv, 3, nil, nil},
		{"{\"item\":\"D-1\",\"item\":\"BAD\"}\n\"D-2\"", ndjson, 1, []int{1}, nil},
		{"[{\"item\":\"D-3\",\"item\":\"BAD\"},\"D-4\"]", nil, 1, []int{1}, nil},
	} {
		got := push(tt.text, tt.args...)
		var bad, odd []int
		for _, e := range got.Errors {
			bad = append(bad, e.Line)
		}
		for _, w := range got.Warnings {
			odd = append(odd, w.Line)
		}
		if got.Accepted != tt.accepted || got.Duplicates != 0 || !slices.Equal(bad, tt.bad) || !slices.Equal(odd, tt.odd) {
			t.Errorf("%q: %+v", tt.text, got)
		}
	}
	for _, none := range []string{"item,a\n", "item,a\r"} {
		c.Stdin = none
		c.Run(1, e2e.Text("nothing was pushed: standard input has no item in it"), "items", "push", "in", "-f", "-", "--format", "csv")
	}
	for _, none := range []string{"", "[]", " \n"} {
		c.Stdin = none
		c.Run(1, e2e.Text("nothing was pushed: standard input has no item in it"), "items", "push", "in", "-f", "-")
	}
	c.Stdin = "item\nx\n"
	c.Run(1, e2e.Text("has no item from line 3 on"), "items", "push", "in", "-f", "-", "--format", "csv", "--from-line", "3")
	c.Run(0, e2e.Text(`key 1: warning: the key "K\u200b" has`, `another key than "K"`, "2 items pushed"), "items", "push", "in", "K\u200b", "K-2")
	c.Run(1, e2e.Text("key 2: the item has no key", "1 item pushed", "1 row is bad, of 2"), "items", "push", "in", "K-3", "")
	c.Run(0, e2e.Text(`the key "w1 " has`, `the key "w10 " has`, "the same holds for 2 more", "12 items pushed"), append(e2e.Text("items", "push", "in"),
		strings.Split("w1 |w2 |w3 |w4 |w5 |w6 |w7 |w8 |w9 |w10 |w11 |w12 ", "|")...)...)

	// One of 3,000 rows, and one that only the server can find.
	var many strings.Builder
	for n := range 3000 {
		fmt.Fprintf(&many, "{\"item\":\"many-%d%s\"}\n", n+1, map[int]string{1499: `\u0000`}[n])
	}
	if got := push(many.String(), ndjson...); got.Accepted != 2999 || len(got.Errors) != 1 || got.Errors[0].Line != 1500 {
		t.Errorf("%+v", got)
	}

	// What was exported is pushed again: nothing of it is new.
	c.Run(0, nil, "get", "in", "--count", "40", "--wait", "30s")
	c.Stdin = c.Run(0, nil, "work", "export", "--task", "in", "--state", "held")
	if !strings.Contains(c.Stdin, "'=1+1") || !strings.Contains(c.Stdin, "'-1") {
		t.Fatalf("not even these keys are in it:\n%s", c.Stdin)
	}
	if got := push(c.Stdin, csv...); got.Accepted != 0 || got.Duplicates != 40 || got.Bad != 0 {
		t.Errorf("pushed again: %+v", got)
	}
}

func TestTimeOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.FixedZone("", 3600))
	for text, want := range map[string]string{
		"90m":                       "2030-01-31T12:30:00Z",
		"0s":                        "2030-01-31T11:00:00Z",
		"2030-02-01T08:00:00+02:00": "2030-02-01T06:00:00Z",
		"2030-02-01 08:00:01+05:30": "2030-02-01T02:30:01Z", // as lists print it
		"2030-02-01 08:00":          "2030-02-01T07:00:00Z",
		"2030-02-01 08:00:01":       "2030-02-01T07:00:01Z",
		"2030-02-01":                "2030-01-31T23:00:00Z",
		"9999-12-31":                "9999-12-30T23:00:00Z",
		"9999-12-31 23:59:59-05:00": "", "0000-01-01": "", // in UTC these years are 10000 and -1
		"-1h": "", "": "", "tomorrow": "",
	} {
		at, err := timeOf("--not-before", text, now)
		if (err != nil) != (want == "") || err == nil && at.Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v", text, at, err)
		}
	}
}

// What JSON would change without a word is refused: bytes that are not UTF-8, and halves of characters. So is what would be left out.
func TestItemsThatJSONWouldChange(t *testing.T) {
	t.Parallel()
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: e2e.Text("GETWORK_URL=http://127.0.0.1:1", "GETWORK_USER=mia", "GETWORK_ROLE=manager")}
	latin := e2e.Write(t, "select 1 as item where 'Z\xfcrich' = ''")
	c.Run(2, e2e.Text("is not UTF-8 text"), "task", "update", "loans", "--query-file", latin)
	c.Run(2, e2e.Text("is not UTF-8 text"), "task", "preview", "--query-file", latin)
	c.Run(2, e2e.Text("is not UTF-8 text"), "task", "create", "-f", e2e.Write(t, "name: z\ntitle: Z\xfcrich\n"))
	c.Run(2, e2e.Text(`the argument "a\xe4" is not UTF-8 text`), "items", "push", "photos", "a\xe4", "b")
	c.Run(2, e2e.Text(`the argument "a\xe4" is not UTF-8 text`), "items", "redrive", "photos", "a\xe4")
	c.Run(1, e2e.Text("half of a character", "2 rows are bad, of 2"), "items", "push", "photos", "-f", e2e.Write(t, `[{"item":"a\ud83d"},{"item":"a\ud83c"}]`))
}
