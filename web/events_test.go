package web

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
	"getwork/web/contract"
)

// listener is a client of the event stream.
type listener struct {
	t      *testing.T
	lines  *bufio.Scanner
	leave  context.CancelFunc
	header http.Header
}

// listen opens the event stream, which must be answered.
func (n *station) listen(t *testing.T, query string, h headers) *listener {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(2*time.Minute))
	t.Cleanup(cancel)
	response, err := n.Client().Do(n.request(t, "GET", "/api/v1/events"+query, h, "").WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d", response.StatusCode)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return &listener{t, lines, cancel, response.Header}
}

// next returns the body of the next event of that type. It skips others, and checks all against the description.
func (l *listener) next(kind string) map[string]any {
	l.t.Helper()
	for {
		got, body := l.event()
		if got == "" {
			l.t.Fatalf("the stream ended before %s: %v", kind, l.lines.Err())
		}
		if got == kind {
			return body
		}
	}
}

// event returns the next event of any type; its type is empty if the stream has ended.
func (l *listener) event() (kind string, body map[string]any) {
	l.t.Helper()
	for l.lines.Scan() {
		name, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "data":
			var message map[string]any
			if err := json.Unmarshal([]byte(value), &message); err != nil {
				l.t.Fatalf("%s: %v", value, err)
			}
			if err := contract.Check(kind, []byte(value)); err != nil {
				l.t.Errorf("event %s: %s is not as asyncapi.json describes it: %v", kind, value, err)
			}
			d := described(l.t)
			if wrong := d.check("", map[string]any{"$ref": "#/components/schemas/Message"}, message); len(wrong) > 0 || message["type"] != kind || len(message) != 2 {
				l.t.Errorf("event %s: %s is not as described: %v", kind, value, wrong)
			}
			body, _ = message[kind].(map[string]any)
			return kind, body
		}
	}
	return "", nil
}

// A stream has hello, a snapshot, then changes, in the same JSON as REST.
func TestEvents(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{readTimeout: 6 * time.Second}) // long enough for what is sent, and an open stream outlasts it
	n.newTask(t, "verify", five, `,"paused":true`)
	n.newTask(t, "answer", five, "")
	waits := n.pendingRequest(t, "verify", "oliver")
	l := n.listen(t, "?task=verify,answer", as("oliver", "X-Getwork-Role", "agent"))
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
		if got := l.header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if kind, hello := l.event(); kind != "hello" || hello["node"] != n.engine.Node || hello["user"] != "oliver" || hello["role"] != "agent" {
		t.Errorf("first %s %v", kind, hello)
	}
	if kind, snapshot := l.event(); kind != "snapshot" || len(snapshot["requests"].([]any)) != 1 || len(snapshot["work"].([]any)) != 0 {
		t.Errorf("second %s %v", kind, snapshot)
	}
	seen := []any{l.next("task")["name"], l.next("task")["name"]} // what is followed is sent at once
	if !slices.Contains(seen, "verify") || !slices.Contains(seen, "answer") {
		t.Errorf("the tasks that were told of are %v", seen)
	}
	n.call(t, "GET", "/api/v1/requests/1", as("oliver", "Prefer", "wait=7"), "").want(200) // so long it is open

	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"1"`), `{"paused":false}`).want(200)
	for l.next("run")["phase"] != "finished" {
	}
	// The run's end may be announced before the round's commit, so the test waits for that by other means.
	done := read[assign.Request](n.call(t, "GET", "/api/v1/requests/1", as("oliver", "Prefer", "wait=60"), "").want(200))
	if done.ID != waits.ID || done.State != assign.Assigned {
		t.Fatalf("request %+v", done)
	}
	n.call(t, "POST", "/api/v1/work/1/disposition", as("oliver"), `{"outcome":"never"}`).want(200)
	if w := l.next("work"); w["id"] != "1" || w["state"] != "never" {
		t.Errorf("work %v", w)
	}
	l.leave()
	await(t, "the stream's call ends with its client", func() bool { return n.open.Load() == 0 })
}

// A request's result is pushed with its items, only to its owner, and equals REST's answer.
func TestResultIsPushed(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	oliver, tracy := n.listen(t, "", as("oliver")), n.listen(t, "", as("tracy"))
	oliver.next("snapshot")
	tracy.next("snapshot")
	// The result is pushed whether the answer is 202 or, if the round was faster, 201.
	n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver"), `{"count":2}`)
	pushed := oliver.next("request")
	for pushed["state"] == "pending" {
		pushed = oliver.next("request")
	}
	shown := read[map[string]any](n.call(t, "GET", "/api/v1/requests/1", as("oliver"), "").want(200))
	if a, b := text(t, pushed), text(t, shown); a != b {
		t.Errorf("pushed %s\nshown  %s", a, b)
	}
	n.call(t, "POST", "/api/v1/tasks/verify/requests", as("tracy"), `{"count":1}`)
	for r := tracy.next("request"); ; r = tracy.next("request") {
		if r["user"] != "tracy" {
			t.Errorf("tracy was told of %v", r)
		}
		if r["state"] == "assigned" {
			break
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEventsRefused(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.call(t, "GET", "/api/v1/events?task=nothing", as("oliver"), "").refused(404, "not-found")
	n.call(t, "GET", "/api/v1/events?task=verify%zz", as("oliver"), "").refused(400, "invalid")
	n.call(t, "GET", "/api/v1/events", nil, "").refused(401, "unauthenticated")
}

// A node that shuts down announces that on every stream and ends it, also on one that is opened then.
func TestEventsEndWithTheNode(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	first := n.listen(t, "", as("oliver"))
	first.next("snapshot")
	n.drain()
	for _, l := range []*listener{first, n.listen(t, "", as("tracy"))} {
		for {
			kind, body := l.event()
			if kind == "" {
				t.Fatal("it ended without a word")
			}
			if kind == "node" && body["state"] == "draining" {
				break
			}
		}
		if kind, _ := l.event(); kind != "" {
			t.Errorf("after the end came %s", kind)
		}
	}
	for range 20 { // it is random which of the two is ready first
		if kind, _ := n.listen(t, "", as("peter")).event(); kind != "hello" {
			t.Fatalf("a stream that is opened now begins with %q", kind)
		}
	}
}
