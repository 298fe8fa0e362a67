package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/schema/schematest"
)

func observer(more ...string) headers {
	return as("otto", append(more, "X-Getwork-Role", "observer")...)
}

// Waiting requests are listed oldest first, page by page, also of several tasks, each with its position in its own task.
func TestWaiting(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	for _, task := range []string{"verify", "answer"} {
		n.newTask(t, task, five, `,"paused":true`)
	}
	type page struct {
		Requests []assign.Request `json:"requests"`
		Next     string           `json:"next_cursor"`
	}
	list := func(query string) page {
		t.Helper()
		return read[page](n.call(t, "GET", "/api/v1/requests"+query, observer(), "").want(200))
	}
	shown := func(p page) string {
		var all []string
		for _, r := range p.Requests {
			all = append(all, fmt.Sprintf("%d:%s:%s:%d", r.ID, r.Task, r.User, *r.Position))
		}
		return strings.Join(all, " ")
	}
	if r := n.call(t, "GET", "/api/v1/requests", observer(), "").want(200); r.body != "{\"requests\":[]}\n" {
		t.Errorf("nobody waits: %s", r.body)
	}
	n.pendingRequest(t, "verify", "ann")
	n.pendingRequest(t, "answer", "ann")
	gone := n.pendingRequest(t, "verify", "bob")
	n.pendingRequest(t, "verify", "cyd")
	n.call(t, "DELETE", fmt.Sprintf("/api/v1/requests/%d", gone.ID), as("bob"), "").want(200)

	if got := shown(list("")); got != "1:verify:ann:1 2:answer:ann:1 4:verify:cyd:2" {
		t.Errorf("all: %s", got)
	}
	if got := shown(list("?task=verify")); got != "1:verify:ann:1 4:verify:cyd:2" {
		t.Errorf("of one task: %s", got)
	}
	first := list("?limit=2")
	second := list("?limit=2&cursor=" + first.Next)
	if diff := cmp.Diff([]string{"1:verify:ann:1 2:answer:ann:1", "4:verify:cyd:2", ""}, []string{shown(first), shown(second), second.Next}); diff != "" {
		t.Error(diff)
	}
	if r := first.Requests[0]; r.Wanted != 2 || r.LingerUntil == nil || r.State != assign.Pending || r.Work == nil {
		t.Errorf("a request is %+v", r)
	}
	for query, field := range map[string]string{"limit=0": "limit", "limit=1001": "limit", "cursor=x": "cursor"} {
		n.call(t, "GET", "/api/v1/requests?"+query, observer(), "").refused(400, "invalid", field)
	}
	n.call(t, "GET", "/api/v1/requests?task=%zz", observer(), "").refused(400, "invalid")
	for _, task := range []string{"nothing", "%00", "%ff", "VERIFY", "verify,answer"} {
		n.call(t, "GET", "/api/v1/requests?task="+task, observer(), "").refused(404, "not-found")
	}
}

// History and returns have the real events, in the described form.
func TestHistory(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.newInbox(t, "photos", "")
	took := n.take(t, "verify", "oliver", 3)
	dispose := func(w assign.Work, by headers, body string) {
		n.call(t, "POST", fmt.Sprintf("/api/v1/work/%d/disposition", w.ID), by, body).want(200)
	}
	dispose(took[0], as("oliver"), `{"outcome":"complete","note":"private"}`)
	dispose(took[1], as("oliver"), `{"outcome":"return","after":"0s"}`)
	from := url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339)) // with a plus sign, perhaps
	h := read[assign.History](n.call(t, "GET", "/api/v1/history?task=verify&step=24h&from="+from, observer(), "").want(200))
	if len(h.Tasks) != 1 || len(h.Tasks[0].Buckets) != 1 {
		t.Fatalf("%+v", h)
	}
	b := h.Tasks[0].Buckets[0]
	if b.WaitMS == nil || b.RunMS == nil || b.WaitMS.Max < b.RunMS.P50 || b.WaitMS.P50 != b.WaitMS.Max {
		t.Errorf("waits %+v, runs %+v", b.WaitMS, b.RunMS)
	}
	b.WaitMS, b.RunMS = nil, nil
	if diff := cmp.Diff(assign.Bucket{At: h.From, Requests: 1, Given: 1, Runs: 1, Assigned: 3, Completed: 1, Returned: 1, Held: 1, Left: new(int64(3))}, b); diff != "" {
		t.Error(diff)
	}
	if h := read[assign.History](n.call(t, "GET", "/api/v1/history", manager(), "").want(200)); len(h.Tasks) != 2 || h.Tasks[0].Task != "photos" ||
		h.Step != assign.Duration(5*time.Minute) || len(h.Tasks[0].Buckets) < 72 {
		t.Errorf("of all tasks: %+v", h.Step)
	}

	r := read[map[string]any](n.call(t, "GET", "/api/v1/returns?task=verify,photos", observer(), "").want(200))
	delete(r, "from")
	want := map[string]any{"team": map[string]any{"closed": 2.0, "returned": 1.0, "share": 0.5}, "items": []any{},
		"people": []any{map[string]any{"user": "oliver", "assigned": 3.0, "closed": 2.0, "completed": 1.0, "returned": 1.0,
			"never": 0.0, "failed": 0.0, "expired": 0.0, "share": 0.5, "held": 1.0}}}
	oliver := r["people"].([]any)[0].(map[string]any)
	if rate, took := oliver["done_per_hour"].(float64), oliver["handling_p50_seconds"].(float64); rate <= 0 || took <= 0 {
		t.Errorf("%v an hour, half took under %v s", rate, took)
	}
	delete(oliver, "done_per_hour")
	delete(oliver, "handling_p50_seconds")
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
}

func TestHistoryRefused(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	at := func(ago time.Duration) string { return "from=" + time.Now().Add(-ago).UTC().Format(time.RFC3339) }
	for query, field := range map[string]string{"step=9s": "step", "step=5": "step", "step=-5m": "step", "step=0s": "step", "step=1500ms": "step",
		"from=yesterday": "from", "from=2026-01-01": "from", at(-time.Minute): "from", at(8 * 24 * time.Hour): "from",
		"step=10s": "step", at(7*24*time.Hour) + "&step=10m": "step"} {
		n.call(t, "GET", "/api/v1/history?"+query, observer(), "").refused(400, "invalid", field)
		if field == "from" {
			n.call(t, "GET", "/api/v1/returns?"+query, observer(), "").refused(400, "invalid", field)
		}
	}
	for _, call := range []string{"history", "returns"} {
		n.call(t, "GET", "/api/v1/"+call+"?task=%zz", observer(), "").refused(400, "invalid")
		for _, task := range []string{"nothing", "verify,nothing", "verify,", "%00", "VERIFY"} {
			n.call(t, "GET", "/api/v1/"+call+"?task="+task, observer(), "").refused(404, "not-found")
		}
	}
}

// A node that hides people's figures tells those of the team and of items.
func TestPeopleHidden(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{hidePeople: true})
	n.newInbox(t, "photos", "")
	n.call(t, "POST", "/api/v1/tasks/photos/items", manager(), `[{"item":"a"}]`).want(200)
	w := n.take(t, "photos", "ann", 1)[0]
	n.call(t, "POST", workPath(w, "disposition"), as("ann"), `{"outcome":"return","after":"0s"}`).want(200)
	answer := n.call(t, "GET", "/api/v1/returns", manager(), "").want(200)
	if got := read[assign.Returns](answer); got.Team.Returned != 1 || !got.Hidden || got.People == nil || len(got.People) > 0 {
		t.Errorf("the answer is %s", answer.body)
	}
	if strings.Contains(answer.body, "ann") {
		t.Errorf("somebody is named: %s", answer.body)
	}
}
