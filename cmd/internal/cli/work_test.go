package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// works decodes the work that a command prints with --json.
func works(c e2e.Terminal, args ...string) []assign.Work {
	c.T.Helper()
	var list struct{ Work []assign.Work }
	c.Decode(0, &list, args...)
	return list.Work
}

func TestWorkCommands(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, e2e.Text("task photos created"), "task", "create", "--name", "photos", "--inbox", "--lease", "1h", "--max-attempts", "2", "--backoff", "1ms")
	c.Run(0, e2e.Text("4 items pushed to task photos"), "items", "push", "photos", "a", "b", "c", "d")
	c.Run(0, e2e.Text("LEASE UNTIL", "1        photos  a", "2        photos  b"), "get", "photos", "--count", "2")
	c.Run(0, nil, "get", "photos", "--count", "2", "--user", "tracy")

	held := works(c, "pipeline")
	extended := works(c, "work", "extend", "1")
	if len(extended) != 1 || !extended[0].LeaseExpiresAt.After(*held[0].LeaseExpiresAt) {
		t.Errorf("extended from %v to %+v", held[0].LeaseExpiresAt, extended)
	}
	c.Run(1, e2e.Text("1        photos  a", "LEASE UNTIL", "no work 3 of yours"), "work", "extend", "1", "3")

	c.Run(0, e2e.Text("1        photos  a     failed", "AGAIN FROM"), "done", "1", "--outcome", "fail", "--error", "broken")
	c.Run(0, e2e.Text("2        photos  b     returned"), "done", "2", "--outcome", "return", "--after", "1h", "--to", "others", "--note", "not mine")
	c.Run(0, e2e.Text("ATTEMPT", "5        photos  a"), "get", "photos", "--linger", "10s")
	c.Run(0, e2e.Text("ATTEMPT"), "pipeline")
	c.Run(0, e2e.Text("5        photos  a     never\n"), "done", "5", "--outcome", "fail")

	c.Run(0, e2e.Text("3        photos  c", "4        photos  d"), "pipeline", "--of", "tracy")
	c.Run(1, e2e.Text("only a manager may see somebody else's pipeline"), "pipeline", "--of", "tracy", "--role", "worker")
	c.Run(1, e2e.Text(`nobody called "zoe" has logged in, asked for work or held any here; check the name, or add --force if they are still to come`), "work", "reassign", "3", "--to", "zoe")
	c.Run(0, e2e.Text("6        photos  c     zoe   held"), "work", "reassign", "3", "--to", "zoe", "--force")
	c.Run(1, e2e.Text("work 3 is not held any more; `getwork work list --item ITEM` shows"), "work", "reassign", "3", "--to", "zoe")
	c.Run(1, e2e.Text("your role is agent"), "work", "reassign", "4", "--to", "zoe", "--role", "agent")

	listed(c, t)
	c.Run(0, e2e.Text("To be released: 2 items of task photos.\n"), "work", "release", "--task", "photos", "--dry-run")
	c.Run(0, e2e.Text("Released: 1 item of task photos, held by tracy.\n"), "work", "release", "--task", "photos", "--of", "tracy", "--yes")
	c.Run(0, nil, "get", "photos", "--count", "5", "--user", "tracy")
	c.Run(1, e2e.Text("still waits"), "get", "photos", "--linger", "1h", "--wait", "0s", "--user", "tracy")
	c.Run(0, e2e.Text("To be released: 1 item, held by tracy; to be cancelled: 1 waiting request.\n"), "work", "release", "--of", "tracy", "--dry-run")
	c.Run(0, e2e.Text("Released: 1 item, held by tracy; cancelled: 1 waiting request.\n"), "work", "release", "--of", "tracy", "--yes")
	c.Run(0, e2e.Text("Nobody holds such work or waits for it"), "work", "release", "--of", "tracy", "--yes")
	c.Run(1, e2e.Text("no task \"nope\""), "work", "release", "--task", "nope", "--yes")
	var released assign.Released
	c.Decode(0, &released, "work", "release", "--of", "zoe", "--yes")
	if released.Count != 1 {
		t.Errorf("released %+v", released)
	}
}

// An item is shown as its task wants it, with the values that stand out, and without those that are folded.
func TestWorkShow(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "-f", e2e.Write(t, `
name: verify
query: |
  select 'L/1' as item, 'Ann Bo' as borrower, 1234567.50 as amount, 12.5 as off, 'CH9300762011623852957' as iban, 2 as wrong, 0 as gaps, 'x' as aside
display:
  title: "{borrower}, {amount}"
  url: https://loans.example/{item}
  fields:
    - {column: amount, format: money, currency: CHF}
    - {column: off, label: Overstated, format: percentage}
    - {column: iban, format: iban, folded: true}
    - {column: wrong, stands_out: wrong > 0}
    - {column: gaps, stands_out: gaps > 0}
`))
	c.Run(0, nil, "get", "verify")
	shown := c.Run(0, e2e.Text("Ann Bo, CHF 1,234,567.50\n\n", "Open        https://loans.example/L%2F1\n", "Amount      CHF 1,234,567.50\nOverstated  12.5 %\nWrong       ! 2\nGaps        0\n\n3 more with --all\n"),
		"work", "show", "1")
	if strings.Contains(shown, "CH93") || strings.Contains(shown, "Aside") {
		t.Error("folded columns are shown: ", shown)
	}
	c.Run(0, e2e.Text("Iban        CH93 0076 2011 6238 5295 7\n", "Aside       x\n"), "work", "show", "1", "--all", "--role", "observer")
	c.Run(1, e2e.Text("no work 1;"), "work", "show", "1", "--user", "tracy")
	var w assign.Work
	c.Decode(0, &w, "work", "show", "1")
	if !strings.Contains(string(w.Details), `"amount":1234567.50`) && !strings.Contains(string(w.Details), `"amount": 1234567.50`) {
		t.Errorf("details are not raw: %s", w.Details)
	}
	c.Run(0, nil, "task", "update", "verify", "--display", "none")
	c.Run(0, e2e.Text("L/1\n\n", "Borrower  Ann Bo\n", "Amount    1234567.50\n", "Aside     x\n"), "work", "show", "1")
	c.Run(0, nil, "done", "1", "--outcome", "return", "--after", "0s", "--note", "no\nanswer")
	c.Run(0, nil, "get", "verify")
	c.Run(0, e2e.Text("Earlier   2", " returned by oliver: no answer\n"), "work", "show", "2")
	c.Run(0, e2e.Text("updated (version 3): notes"), "task", "update", "verify", "--notes", "managers")
	if shown := c.Run(0, nil, "work", "show", "2"); strings.Contains(shown, "Earlier") {
		t.Error("what is for managers is shown: ", shown)
	}
}

// listed reads the history with several filters.
func listed(c e2e.Terminal, t *testing.T) {
	t.Helper()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "6 c zoe held, 5 a oliver never, 4 d tracy held, 3 c tracy reassigned, 2 b oliver returned, 1 a oliver failed"},
		{e2e.Text("--of", "tracy"), "4 d tracy held, 3 c tracy reassigned"},
		{e2e.Text("--state", "held", "--task", "photos"), "6 c zoe held, 4 d tracy held"},
		{e2e.Text("--item", "a"), "5 a oliver never, 1 a oliver failed"},
		{e2e.Text("--limit", "2"), "6 c zoe held, 5 a oliver never"},
		{e2e.Text("--limit", "2", "--cursor", "5"), "4 d tracy held, 3 c tracy reassigned"},
		{e2e.Text("--all", "--role", "manager"), "6 c zoe held, 5 a oliver never, 4 d tracy held, 3 c tracy reassigned, 2 b oliver returned, 1 a oliver failed"},
		{e2e.Text("--item", "nope"), ""},
	} {
		var got []string
		for _, w := range works(c, append(e2e.Text("work", "list"), tt.args...)...) {
			got = append(got, fmt.Sprint(w.ID, " ", w.Item, " ", w.User, " ", w.State))
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%q: %s", tt.args, diff)
		}
	}
	c.Run(0, e2e.Text("There may be more: --all lists everything, --cursor 6 continues here."), "work", "list", "--limit", "1")
	c.Run(0, e2e.Text("There is no such work."), "work", "list", "--of", "nobody")
	c.Run(0, e2e.Text("ERROR", "broken"), "work", "list", "--role", "manager")
	c.Run(1, e2e.Text("your role is worker"), "work", "list", "--role", "worker")
}

// All pages are asked for, each from the end of the one before, and never more than are wanted.
func TestPages(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		next := map[string]string{"": `,"next_cursor":"70"`, "70": `,"next_cursor":"30"`}[r.URL.Query().Get("cursor")]
		rows := strings.Repeat(`{"id":"1"},`, 999) + `{"id":"1"}`
		_, _ = fmt.Fprintf(w, `{"work":[%s]%s}`, rows, next)
	}))
	defer server.Close()
	client, err := (Remote{URL: server.URL, User: "mary"}).Connect("manager")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		paged
		rows  int
		next  string
		asked string
	}{
		{paged{Limit: 100, All: true}, 3000, "", "limit=1000 cursor=70&limit=1000 cursor=30&limit=1000"},
		{paged{Limit: 2000}, 2000, "30", "limit=1000 cursor=70&limit=1000"},
		{paged{Limit: 1000, Cursor: "30"}, 1000, "", "cursor=30&limit=1000"},
	} {
		asked = nil
		l, err := tt.list(t.Context(), client, "/work", nil, "work")
		if err != nil || len(l.rows) != tt.rows || l.next != tt.next || strings.Join(asked, " ") != tt.asked {
			t.Errorf("%+v: %d rows, next %q, asked %q, %v", tt.paged, len(l.rows), l.next, asked, err)
		}
	}
}

// If the held work changes between the count and the release, nothing is released, and the user is asked to count again.
func TestReleaseOfAnotherSet(t *testing.T) {
	t.Parallel()
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if sent = append(sent, string(b)); len(sent) == 1 {
			_, _ = w.Write([]byte(`{"count":2,"token":"x"}`))
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"type":"/problems/stale-version","detail":"changed"}`))
	}))
	defer server.Close()
	err := workReleaseCmd{Task: new("verify"), Yes: true, Remote: Remote{URL: server.URL, User: "mary"}}.
		Run(t.Context(), &command.Streams{Out: new(bytes.Buffer), Errs: new(bytes.Buffer)})
	if err == nil || !strings.Contains(err.Error(), "nothing was released: the held work has changed") || !strings.Contains(err.Error(), "run the command again") {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{`{"dry_run":true,"task":"verify"}`, `{"task":"verify","token":"x"}`}, sent); diff != "" {
		t.Error(diff)
	}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	for answer, yes := range map[string]bool{"y\n": true, "Yes\r\n": true, "yes": true, "\n": false, "": false, "n\n": false, "yellow\n": false} {
		if err := confirm(t.Context(), strings.NewReader(answer), "no"); (err == nil) != yes {
			t.Errorf("%q: %v", answer, err)
		}
	}
	from, to := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, interrupt)
	if err := confirm(ctx, from, "no"); !errors.Is(err, ErrInterrupted) {
		t.Errorf("interrupted: %v", err)
	}
	to.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if command.IsTerminal(null) {
		t.Error("the null device is taken for a terminal")
	}
}

func TestListAsJSON(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]list{
		`{"work":[{"id":"1"}],"next_cursor":"1"}`: {"work", []json.RawMessage{[]byte(`{"id":"1"}`)}, "1"},
		`{"runs":[]}`: {"runs", []json.RawMessage{}, ""},
	} {
		b, err := json.Marshal(l)
		var got, wanted any
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if e := json.Unmarshal([]byte(want), &wanted); err != nil || e != nil || cmp.Diff(wanted, got) != "" {
			t.Errorf("%s, not %s: %v", b, want, err)
		}
	}
}

// Holders are listed longest first, of one task or several, or of one user, page by page.
func TestWorkHolders(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	c := e2e.NewTerminal(t)
	for _, task := range []string{"photos", "letters"} {
		c.Run(0, nil, "task", "create", "--name", task, "--inbox")
		c.Run(0, nil, "items", "push", task, "a", "b", "c", "d")
	}
	c.Run(0, e2e.Text("Nobody holds such work."), "work", "holders")
	c.Run(0, nil, "get", "photos", "--count", "2")
	c.Run(0, nil, "get", "photos", "--user", "tracy")
	c.Run(0, nil, "get", "letters", "--user", "tracy")
	c.Run(0, e2e.Text("USER    TASK     HELD  SINCE", "oliver  photos   2     20", "tracy   photos   1     20", "tracy   letters  1     20"), "work", "holders")
	c.Run(0, e2e.Text("tracy  photos   1", "tracy  letters  1"), "work", "holders", "--of", "tracy", "--task", "letters,photos")
	c.Run(0, e2e.Text("oliver", "There may be more: --all lists everything, --cursor "), "work", "holders", "--limit", "1")
	c.Run(1, e2e.Text("no task \"nope\""), "work", "holders", "--task", "nope")
	c.Run(1, e2e.Text("your role is worker"), "work", "holders", "--role", "worker")
	c.Run(2, e2e.Text("--task is empty"), "work", "holders", "--task", "")

	type page struct {
		Holders []assign.Held
		Next    string `json:"next_cursor"`
	}
	var first, rest, all page
	c.Decode(0, &first, "work", "holders", "--limit", "1")
	c.Decode(0, &rest, "work", "holders", "--cursor", first.Next)
	c.Decode(0, &all, "work", "holders", "--all")
	if len(first.Holders) != 1 || len(rest.Holders) != 2 || len(all.Holders) != 3 || rest.Holders[1] != all.Holders[2] || all.Next != "" {
		t.Errorf("first %+v\nrest %+v\nall %+v", first, rest, all)
	}
}
