package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

func TestItemsCommands(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "photos", "--inbox", "--max-attempts", "1")
	c.Run(0, e2e.Text("2 items pushed to task photos\n"), "items", "push", "photos", "a/1", "b ü", "--priority", "5")
	c.Run(0, e2e.Text("1 item pushed to task photos, 1 duplicate\n"), "items", "push", "photos", "a/1", "c", "--exclusive", "album")
	c.Stdin = `{"item":"d","not_before":"2100-01-01T00:00:00Z","details":{"width":800}}` + "\n" + `{"item":"e","exclusive":"album"}`
	var pushed assign.Pushed
	c.Decode(0, &pushed, "items", "push", "photos", "-f", "-", "--priority=-1")
	if pushed != (assign.Pushed{Accepted: 2}) {
		t.Errorf("pushed %+v", pushed)
	}
	c.Stdin = `["f",{"item":""}]`
	c.Run(1, e2e.Text("[1].item: an item's key has 1 to 200 bytes", "nothing was pushed"), "items", "push", "photos", "-f", "-")
	c.Stdin = "[f]\r\n\n{g}\n"
	c.Run(0, e2e.Text("2 items pushed"), "items", "push", "photos", "-f", "-", "--keys-only", "--not-before", "1h")
	c.Run(1, e2e.Text("your role is worker"), "items", "push", "photos", "x", "--role", "worker")
	c.Run(1, e2e.Text("no task \"nope\"; `getwork task list` lists"), "items", "push", "nope", "x")

	c.Run(0, e2e.Text("a/1, of task photos\nIt can be handed out.", "yes, it is in the inbox, at rank 1"), "items", "show", "photos", "a/1")
	c.Run(0, e2e.Text("d, of task photos\nIt is not to be handed out before 2100", "details   width: 800"), "items", "show", "photos", "d")
	c.Run(0, e2e.Text("It is not in the inbox", "matches   no"), "items", "show", "photos", "nope")
	c.Run(0, e2e.Text("1        photos  a/1"), "items", "claim", "photos", "a/1")
	c.Run(0, e2e.Text("1        photos  a/1", "It was yours already."), "items", "claim", "photos", "a/1")
	c.Run(1, e2e.Text("somebody else holds item \"a/1\""), "items", "claim", "photos", "a/1", "--user", "tracy")
	c.Run(1, e2e.Text("item \"nope\" does not match"), "items", "claim", "photos", "nope")
	c.Run(0, e2e.Text("a/1, of task photos\noliver holds it", "Held now:\nWORK-ID", "History, newest first:\nWORK-ID", "not for   oliver, who holds it"),
		"items", "show", "photos", "a/1")

	c.Run(0, e2e.Text("1        photos  a/1   never"), "done", "1", "--outcome", "fail", "--error", "no photo")
	c.Run(0, nil, "items", "claim", "photos", "b ü")
	c.Run(0, nil, "done", "2", "--outcome", "never")
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

func TestReadItems(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"a\n b \r\n\n \nc": `[{"item":"a"},{"item":" b "},{"item":"c"}]`,
		"\ufeffa":          `[{"item":"a"}]`,
		` ["a", {"item":"b","priority":3,"details":{"x":[1]}}]` + "\n": `[{"item":"a"},{"item":"b","priority":3,"details":{"x":[1]}}]`,
		`{"item":"a","slots":2}{"item":"b","exclusive":"g"}`:           `[{"item":"a","slots":2},{"item":"b","exclusive":"g"}]`,
		"": "has no item in it", "\n \n": "has no item in it", "[]": "has no item in it",
		"\xff":                        "is not UTF-8",
		`["a"`:                        "the array does not end",
		`["a"] "b"`:                   "something after the array",
		`["a",3]`:                     "item 2: ",
		`{"item":"a"}` + "\nb":        "item 2: invalid character 'b'",
		`{"item":"a","colour":"red"}`: `item 1: unknown field "colour"`,
		`{"item":"a","priority":"x"}`: "item 1: ",
	} {
		items, err := readItems(t.Context(), e2e.Write(t, content), false)
		got, _ := json.Marshal(items)
		if want[0] == '[' && (err != nil || string(got) != want) || want[0] != '[' && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %s, %v, not %s", content, got, err, want)
		}
	}
}

// No batch is larger than the server takes, and no item is lost between batches.
func TestBatches(t *testing.T) {
	t.Parallel()
	long := json.RawMessage(`{"x":"` + strings.Repeat("y", 300_000) + `"}`)
	for name, items := range map[string][]pushItem{
		"one":   itemsOf(e2e.Text("a")),
		"full":  itemsOf(make([]string, assign.MaxPush)),
		"many":  itemsOf(make([]string, 2*assign.MaxPush+1)),
		"large": {{Item: "a", Details: long}, {Item: "b", Details: long}, {Item: "c", Details: long}, {Item: "d", Details: long}},
	} {
		batches, err := batchesOf(items)
		if want := map[string]int{"one": 1, "full": 1, "many": 3, "large": 2}[name]; err != nil || len(batches) != want {
			t.Errorf("%s: %d batches, not %d: %v", name, len(batches), want, err)
		}
		next := 0
		for _, b := range batches {
			var back []pushItem
			if err := json.Unmarshal(b.body, &back); err != nil || len(b.body) > maxBatch || len(back) != b.count || b.count > assign.MaxPush || b.first != next {
				t.Errorf("%s: batch from %d of %d has %d items in %d bytes: %v", name, b.first, b.count, len(back), len(b.body), err)
			}
			next += b.count
		}
		if next != len(items) {
			t.Errorf("%s: %d of %d items", name, next, len(items))
		}
	}
	huge := json.RawMessage(`"` + strings.Repeat("y", maxBatch) + `"`)
	if _, err := batchesOf([]pushItem{{Item: "a", Details: huge}}); err == nil || !strings.Contains(err.Error(), "at most 1 MiB") {
		t.Error(err)
	}
}

// A push that is too large is split only if --split says so; then a failure tells what was pushed before it.
func TestSplit(t *testing.T) {
	t.Parallel()
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if calls++; calls == 3 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"type":"/problems/invalid","detail":"bad"}`))
			return
		}
		_, _ = fmt.Fprintf(w, `{"accepted":%d,"duplicates":1}`, assign.MaxPush-1)
	}))
	defer server.Close()
	push := itemsPushCmd{Task: "photos", Keys: make([]string, 2*assign.MaxPush+5), Remote: Remote{URL: server.URL, User: "robot"}}
	var out bytes.Buffer
	err := push.Run(t.Context(), &command.Streams{Out: &out, Errs: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "--split pushes them in 3 batches") || calls > 0 {
		t.Errorf("%d calls, %v", calls, err)
	}
	push.Split = true
	err = push.Run(t.Context(), &command.Streams{Out: &out, Errs: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "batch 3 of 3, items 20001 to 20005: bad\nthe batches before it are pushed") {
		t.Error(err)
	}
	if want := "19998 items pushed to task photos, 2 duplicates\n"; out.String() != want {
		t.Errorf("%q, not %q", out.String(), want)
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
		at, err := timeOf(text, now)
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
	c.Run(2, e2e.Text("half of a character"), "items", "push", "photos", "-f", e2e.Write(t, `[{"item":"a\ud83d"},{"item":"a\ud83c"}]`))
	c.Run(2, e2e.Text("there is something else after item 2"), "items", "push", "photos", "-f", e2e.Write(t, `{"item":"a"}{"item":"b","details":{}}}{"item":"c"}`))
	c.Run(2, e2e.Text("there is something else after item 1"), "items", "push", "photos", "-f", e2e.Write(t, `{"item":"a"}]`))
}
