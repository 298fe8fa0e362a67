package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/e2e"
)

func TestWorkFromATerminal(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "verify", "--query", `select 'loan ' || i as item, i * 10 as amount from generate_series(1, 5) i order by i`)
	c.Run(1, e2e.Text("no task \"nope\"; `getwork task list` lists"), "get", "nope")
	c.Run(1, e2e.Text("count is from 1 to 5"), "get", "verify", "--count", "6")
	c.Run(0, e2e.Text("The pipeline is empty."), "pipeline")

	c.Run(0, e2e.Text("WORK-ID  TASK    ITEM", "1        verify  loan 1", "2        verify  loan 2", "amount: 20"), "get", "verify", "--count", "2")
	var r assign.Request
	c.Decode(0, &r, "get", "verify", "--count", "5", "--user", "tracy")
	if r.State != assign.Partial || r.User != "tracy" || len(r.Work) != 3 || r.Work[0].Item != "loan 3" {
		t.Errorf("the second to ask: %+v", r)
	}
	c.Run(1, e2e.Text("nothing to do: every item that matches task verify is held already, by you or by others, or put off"), "get", "verify")
	c.Decode(1, &r, "get", "verify")
	if r.State != assign.None {
		t.Errorf("nothing left: %+v", r)
	}
	c.Run(0, e2e.Text("1        verify  loan 1", "2        verify  loan 2"), "pipeline")

	var done struct{ Work []assign.Work }
	c.Run(0, e2e.Text("1        verify  loan 1  completed"), "done", "1", "--note", "fine")
	c.Decode(0, &done, "done", "1")
	if len(done.Work) != 1 || done.Work[0].State != "completed" || done.Work[0].Note == nil || *done.Work[0].Note != "fine" {
		t.Errorf("done again: %+v", done)
	}
	c.Run(1, e2e.Text("2        verify  loan 2  returned", "AGAIN FROM", "no work 3 of yours; `getwork pipeline` lists"),
		"done", "2", "3", "--outcome", "return", "--after", "0s")
	c.Run(2, e2e.Text(`an id of work is a number, not "x"`, "`getwork pipeline`"), "done", "4", "x")
	c.Run(2, e2e.Text(`an id of work is a number, not "0"`), "done", "0")
	c.Run(1, e2e.Text("work 1 was closed as completed"), "done", "1", "--outcome", "never")
	c.Run(0, e2e.Text("3        verify  loan 3  never"), "done", "3", "--outcome", "never", "--role", "manager")
	many := []string{"done", "1"} // more than one call takes with such a note, and one of it twice
	for i := range 600 {
		many = append(many, strconv.Itoa(1000+i))
	}
	c.Run(1, e2e.Text("1        verify  loan 1  completed", "no work 1000 of yours", "no work 1599 of yours"), append(many, "1", "--note", strings.Repeat("x", 4000))...)
	var p assign.Pipeline
	c.Decode(0, &p, "pipeline", "--user", "tracy")
	if len(p.Work) != 2 || len(p.Requests) != 0 {
		t.Errorf("tracy's pipeline: %+v", p)
	}
	c.Run(0, e2e.Text("There was no more: you got 2 of 5."), "get", "verify", "--count", "5", "--instance", "two") // 1 and 2 came back
	c.Run(0, nil, "task", "create", "--name", "one-each", "--query", "select i as item from generate_series(1, 3) i", "--max-open", "1")
	c.Run(0, e2e.Text("You hold as much as you may, of task one-each or over all tasks: you got 1 of 3."), "get", "one-each", "--count", "3")

	c.Run(0, nil, "task", "update", "verify", "--query", "select i as item from generate_series(1, 0) i")
	c.Run(1, e2e.Text("nothing to do: no item matches task verify now"), "get", "verify")
	c.Run(0, nil, "task", "update", "verify", "--query", "select 1 / (i - i) as item from generate_series(1, 9) i")
	c.Run(1, e2e.Text("the query of task verify failed: managers and observers can see why", "`getwork task update verify`"), "get", "verify")
}

func TestNextFromATerminal(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(1, e2e.Text("no task is open to you"), "get")
	c.Run(0, nil, "task", "create", "--name", "photos", "--inbox", "--pick", "next", "--priority", "1")
	c.Run(0, nil, "task", "create", "--name", "loans", "--inbox")
	c.Run(0, nil, "items", "push", "photos", "a.jpg")
	c.Run(0, nil, "items", "push", "loans", "1", "2")
	c.Run(1, e2e.Text("handed out as what comes next", "getwork get"), "get", "photos")
	c.Run(0, e2e.Text("photos  a.jpg"), "get")
	c.Run(0, e2e.Text("loans  1"), "get")
	c.Run(0, e2e.Text("loans  2"), "get", "loans")
	c.Run(1, e2e.Text("nothing to do: every item of your tasks is held already"), "get")
	c.Run(2, e2e.Text("the name of a task is empty"), "get", "")
	c.Run(0, nil, "items", "push", "photos", "b.jpg")
	c.Run(0, nil, "items", "push", "loans", "3")
	out := filepath.Join(t.TempDir(), "out")
	c.Run(0, nil, "agent", "--any", "photos,loans", "--once", "--", "sh", "-c", `echo "$GETWORK_TASK $GETWORK_ITEM" >>`+out)
	if got, err := os.ReadFile(out); err != nil || !strings.Contains(string(got), "photos b.jpg\n") || !strings.Contains(string(got), "loans 3\n") {
		t.Errorf("%q, %v", got, err)
	}
	c.Run(2, e2e.Text("name the program"), "agent", "--any", "photos,loans")

	c.Run(0, nil, "away")
	c.Run(1, e2e.Text("you are away, and get no work; `getwork back` ends that"), "get")
	c.Run(1, e2e.Text("you are away, and get no work; `getwork back` ends that"), "get", "loans")
}

// slowly creates a task whose query runs until it is stopped.
func slowly(c e2e.Terminal) {
	c.Run(0, nil, "task", "create", "--name", "slow", "--query", "select pg_sleep(600)::text || 'x' as item")
}

var requestID = regexp.MustCompile(`Request (\d+) waits`)

// interrupted runs a command, and presses Ctrl-C when it has begun to wait.
func interrupted(c e2e.Terminal, status int, wanted []string, args ...string) (id string) {
	c.T.Helper()
	command, out, _ := c.Command(args...)
	errs, err := os.CreateTemp(c.T.TempDir(), "")
	if err != nil {
		c.T.Fatal(err)
	}
	defer errs.Close()
	printed := func() string {
		b, _ := os.ReadFile(errs.Name())
		return string(b)
	}
	command.Stderr = errs
	if err := command.Start(); err != nil {
		c.T.Fatal(err)
	}
	e2e.Await(c.T, "the command to wait", 30*time.Second, func() bool { return requestID.MatchString(printed()) })
	if err := command.Process.Signal(os.Interrupt); err != nil {
		c.T.Fatal(err)
	}
	err = command.Wait()
	c.Expect(args, status, wanted, err, out.String(), printed())
	return requestID.FindStringSubmatch(printed())[1]
}

func TestGetWaits(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	slowly(c)
	id := interrupted(c, 1, e2e.Text("Ctrl-C cancels it", "was cancelled"), "get", "slow")
	c.Run(0, e2e.Text("The pipeline is empty."), "pipeline")
	again := interrupted(c, 1, e2e.Text("the request stays", "still waits\n`getwork get slow` waits for it again"), "get", "slow", "--keep", "--count", "2")
	if again == id {
		t.Error("a cancelled request was taken up again")
	}
	c.Run(0, e2e.Text("WAITING  TASK  WANTED", again+" "), "pipeline")
	c.Run(1, e2e.Text("no answer yet: request "+again+" still waits"), "get", "slow", "--wait", "0s")
	var r assign.Request
	c.Decode(1, &r, "get", "slow", "--wait", "8s") // the first answer comes within that
	if r.State != assign.Pending || fmt.Sprint(r.ID) != again || r.Wanted != 2 {
		t.Errorf("asked again: %+v", r)
	}
	c.Run(0, nil, "task", "update", "slow", "--query", "select i as item from generate_series(1, 9) i")
	e2e.Await(t, "what it waited for", 30*time.Second, func() bool {
		var p assign.Pipeline
		c.Decode(0, &p, "pipeline")
		return len(p.Work) == 2
	})
}

// If a node goes away and comes back, the command asks again under the same key, or for the same request, until --wait
// is over. It honours the node's Retry-After.
func TestGetIsPatient(t *testing.T) {
	t.Parallel()
	refuse := func(status int, kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"type":"/problems/%s","title":"x","detail":"%s for now"}`, kind, kind)
		}
	}
	lost := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	say := func(state string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			_, _ = fmt.Fprintf(w, `{"id":"7","task":"verify","wanted":1,"assigned":1,"state":"%s","work":[{"id":"1","task":"verify","item":"a"}]}`, state)
		}
	}
	const post, get = "POST /api/v1/tasks/verify/requests", "GET /api/v1/requests/7"
	for name, tt := range map[string]struct {
		answers []http.HandlerFunc
		calls   []string
		wait    time.Duration
		fails   string
	}{
		"lost, and unavailable":  {[]http.HandlerFunc{lost, refuse(503, "unavailable"), refuse(429, "busy"), say("assigned")}, []string{post, post, post, post}, time.Minute, ""},
		"lost while it waits":    {[]http.HandlerFunc{say("pending"), lost, refuse(502, "x"), say("pending"), say("assigned")}, []string{post, get, get, get, get}, time.Minute, ""},
		"unavailable to the end": {[]http.HandlerFunc{refuse(503, "unavailable")}, []string{post}, 0, "unavailable for now\nTry again in 1s."},
		"refused":                {[]http.HandlerFunc{refuse(404, "not-found")}, []string{post}, time.Minute, "not-found for now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls, keys []string
			var times []time.Time
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls, keys, times = append(calls, r.Method+" "+r.URL.Path), append(keys, r.Header.Get("Idempotency-Key")), append(times, time.Now())
				tt.answers[len(calls)-1](w, r)
			}))
			defer server.Close()
			server.Config.SetKeepAlivesEnabled(false) // net/http itself repeats a GET on a connection that has served before
			var out bytes.Buffer
			err := GetCmd{Tasks: []string{"verify"}, Count: 1, Wait: &tt.wait, holding: holding{Remote: Remote{URL: server.URL, User: "oliver"}}}.
				Run(t.Context(), &command.Streams{Out: &out, Errs: io.Discard})
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || err.Error() != tt.fails) {
				t.Errorf("%v, not %q", err, tt.fails)
			}
			if !slices.Equal(calls, tt.calls) {
				t.Errorf("asked %q", calls)
			}
			for i := 1; i < len(times); i++ {
				if pause := times[i].Sub(times[i-1]); pause < 900*time.Millisecond {
					t.Errorf("asked again after %v", pause)
				}
				if calls[i] == post && (keys[i] != keys[0] || keys[i] == "") {
					t.Errorf("keys %q", keys)
				}
			}
		})
	}
}

// Ctrl-C comes before the first answer: the click, sent again under its key, says which request to cancel.
func TestInterruptedClick(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	var calls []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Method+" "+r.Header.Get("Prefer"))
		state := "pending"
		switch {
		case len(calls) == 1:
			_, _ = io.Copy(io.Discard, r.Body)
			interrupt()
			<-r.Context().Done()
			return
		case r.Method == "DELETE":
			state = "cancelled"
		}
		_, _ = fmt.Fprintf(w, `{"id":"7","task":"verify","state":"%s"}`, state)
	}))
	defer server.Close()
	var out bytes.Buffer
	err := GetCmd{Tasks: []string{"verify"}, Count: 1, Wait: new(time.Minute), holding: holding{Remote: Remote{URL: server.URL, User: "oliver", JSON: true}}}.
		Run(ctx, &command.Streams{Out: &out, Errs: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "request 7 was cancelled") || !json.Valid(out.Bytes()) {
		t.Errorf("%v\n%s", err, &out)
	}
	if want := []string{"POST wait=2", "POST ", "DELETE "}; !slices.Equal(calls, want) {
		t.Errorf("%q, not %q", calls, want)
	}
}
