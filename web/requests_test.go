package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/schema/schematest"
)

// onlyAt calls f at one step.
func onlyAt(at engine.Step, f func(context.Context)) func(context.Context, engine.Step) {
	return func(ctx context.Context, step engine.Step) {
		if step == at {
			f(ctx)
		}
	}
}

// A click, its status while it waits, and its result.
func TestGetWork(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	open := make(chan struct{})
	n := start(t, stationOptions{steps: onlyAt(engine.StepRunBegins, func(ctx context.Context) {
		select {
		case <-open:
		case <-ctx.Done():
		}
	})})
	n.newTask(t, "verify", five, "")
	began := time.Now()
	clicked := n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver"), `{"count":2}`).want(202).
		wantHeader("Location", "/api/v1/requests/1").wantAgain("5", 0, began).wantHeader("Preference-Applied", "")
	want := map[string]any{"id": "1", "task": "verify", "user": "oliver", "wanted": 2.0, "requested": 2.0, "assigned": 0.0,
		"state": "pending", "reason": nil, "error": nil, "lease": nil, "linger_until": nil, "completed_at": nil, "eta_seconds": nil,
		"position": 1.0, "ranked_at": nil, "stale": false, "work": []any{}}
	got := read[map[string]any](clicked)
	delete(got, "created_at")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again := read[assign.Request](n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver"), `{"count":5}`).want(202))
	if again.ID != 1 || again.Wanted != 2 {
		t.Errorf("asking again got %+v", again)
	}
	if p := read[assign.Pipeline](n.call(t, "GET", "/api/v1/pipeline", as("oliver"), "").want(200)); len(p.Requests) != 1 || len(p.Work) != 0 {
		t.Errorf("pipeline %+v", p)
	}

	close(open)
	n.call(t, "GET", "/api/v1/requests/1", as("oliver", "Prefer", "wait=60"), "").want(200).
		wantHeader("Retry-After", "").wantHeader("Preference-Applied", "wait=60")
	done := read[assign.Request](n.call(t, "POST", "/api/v1/tasks/verify/requests", as("tracy", "Prefer", "wait=60"), `{"count":5}`).want(201))
	if done.State != assign.Partial || done.Requested != 3 || done.Assigned != 3 || done.Work[0].Item != "loan/3" || string(done.Work[0].Details) != `{"amount":3}` {
		t.Errorf("the second got %+v", done)
	}
	none := read[assign.Request](n.call(t, "POST", "/api/v1/tasks/verify/requests", as("uma", "Prefer", "wait=60"), `{"count":5}`).want(201))
	if none.State != assign.None || *none.Reason != assign.AllHeld {
		t.Errorf("the third got %+v", none)
	}
	if p := read[assign.Pipeline](n.call(t, "GET", "/api/v1/pipeline?user=tracy", manager(), "").want(200)); len(p.Work) != 3 || len(p.Requests) != 0 {
		t.Errorf("pipeline %+v", p)
	}
}

func TestClickRefused(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	click := func(body string, h ...string) reply {
		return n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", h...), body)
	}
	click(`{"count":0}`).refused(400, "invalid", "count")
	click(`{"count":6}`).refused(400, "invalid", "count")
	click(`{}`).refused(400, "invalid", "count")
	click(`{"count":1,"linger":"25h"}`).refused(400, "invalid", "linger")
	click(`{"count":1,"linger":"-1s"}`).refused(400, "invalid", "linger")
	click(`{"count":1}`, "Idempotency-Key", strings.Repeat("k", 256)).refused(400, "invalid", "Idempotency-Key")
	click(`{"count":1}`, "Idempotency-Key", "a\xff").refused(400, "invalid", "Idempotency-Key")
	click(`{"count":1}`, "Idempotency-Key", "a", "Idempotency-Key", "b").refused(400, "invalid", "Idempotency-Key")
	n.call(t, "POST", "/api/v1/tasks/nothing/requests", as("oliver"), `{"count":1}`).refused(404, "not-found")
	if r := read[assign.Request](click(`{"count":1}`).want(201)); r.State != assign.None || *r.Reason != assign.Paused || r.CompletedAt == nil {
		t.Errorf("paused: %+v", r)
	}
	if r := read[assign.Request](click(`{"count":1,"linger":"90m"}`).want(202)); r.LingerUntil == nil || r.LingerUntil.Sub(r.CreatedAt).Round(time.Minute) != 90*time.Minute {
		t.Errorf("lingers: %+v", r)
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	click := func(user, body string) reply {
		return n.call(t, "POST", "/api/v1/tasks/verify/requests", as(user, "Prefer", "wait=60", "Idempotency-Key", "k"), body)
	}
	first := read[assign.Request](click("oliver", `{"count":1}`).want(201))
	again := click("oliver", ` { "count" : 1, "linger":"0s" } `).want(201).wantHeader("Location", fmt.Sprintf("/api/v1/requests/%d", first.ID))
	if got := read[assign.Request](again); got.ID != first.ID || len(got.Work) != 1 {
		t.Errorf("again got %+v", got)
	}
	click("oliver", `{"count":2}`).refused(422, "idempotency-mismatch")
	if other := read[assign.Request](click("tracy", `{"count":2}`).want(201)); other.ID == first.ID {
		t.Error("another user's key")
	}
}

// Retry-After goes by age: 5 below 5 s, 10 below 15 s, then 20.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	r := n.pendingRequest(t, "verify", "oliver")
	for age, want := range map[time.Duration]string{0: "5", 6 * time.Second: "10", 14 * time.Second: "10", 16 * time.Second: "20", 2 * time.Hour: "20"} {
		since := time.Now()
		n.exec(t, `update getwork.work_requested set created_at = clock_timestamp() - $2::interval where id = $1`, r.ID, age)
		got := n.call(t, "GET", fmt.Sprintf("/api/v1/requests/%d", r.ID), as("oliver"), "").want(200).wantAgain(want, age, since)
		n.call(t, "GET", fmt.Sprintf("/api/v1/requests/%d", r.ID), as("oliver", "If-None-Match", got.header.Get("ETag")), "").
			want(304).wantAgain(want, age, since).wantHeader("ETag", got.header.Get("ETag"))
		n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver"), `{"count":1}`).want(202).wantAgain(want, age, since)
	}
}

// The ETag covers everything but what changes with time: the position.
func TestETag(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	first, second := n.pendingRequest(t, "verify", "oliver"), n.pendingRequest(t, "verify", "tracy")
	path := fmt.Sprintf("/api/v1/requests/%d", second.ID)
	before := n.call(t, "GET", path, as("tracy"), "").want(200)
	n.call(t, "DELETE", fmt.Sprintf("/api/v1/requests/%d", first.ID), as("oliver"), "").want(200)
	after := n.call(t, "GET", path, as("tracy"), "").want(200)
	if a, b := *read[assign.Request](before).Position, *read[assign.Request](after).Position; a != 2 || b != 1 {
		t.Fatalf("position %d, then %d", a, b)
	}
	tag := before.header.Get("ETag")
	after.wantHeader("ETag", tag)
	for _, have := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		if r := n.call(t, "GET", path, as("tracy", "If-None-Match", have), "").want(304); r.body != "" {
			t.Errorf("a body: %s", r.body)
		}
	}
	n.call(t, "GET", path, as("tracy", "If-None-Match", `"x"`, "If-None-Match", tag), "").want(304)
	n.call(t, "GET", path, as("tracy", "If-None-Match", `"x"`), "").want(200)
	n.call(t, "DELETE", path, as("tracy"), "").want(200)
	if n.call(t, "GET", path, as("tracy", "If-None-Match", tag), "").want(200).header.Get("ETag") == tag {
		t.Error("it was cancelled, and has the same ETag")
	}
}

// Prefer: wait holds the answer until there is a change, and no longer than requested.
func TestPreferWait(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{readTimeout: 6 * time.Second}) // long enough for what is sent, and a held answer outlasts it
	n.newTask(t, "verify", five, `,"paused":true`)
	began := time.Now()
	r := n.pendingRequest(t, "verify", "oliver")
	path := fmt.Sprintf("/api/v1/requests/%d", r.ID)
	held := n.call(t, "GET", path, as("oliver", "Prefer", "wait=7"), "").want(200).
		wantHeader("Preference-Applied", "wait=7").wantAgain("5", 0, began)
	if held.took < 7*time.Second {
		t.Errorf("held for %v", held.took)
	}
	tag := held.header.Get("ETag")
	same := n.call(t, "GET", path, as("oliver", "Prefer", "wait=1", "If-None-Match", tag), "").want(304).wantHeader("Preference-Applied", "wait=1")
	if same.took < time.Second || same.header.Get("Retry-After") == "" {
		t.Errorf("held for %v, Retry-After %q", same.took, same.header.Get("Retry-After"))
	}
	posted := n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", "Prefer", "wait=1"), `{"count":1}`).want(202).wantHeader("Preference-Applied", "wait=1")
	if posted.took < time.Second {
		t.Errorf("held for %v", posted.took)
	}
	for prefer, applied := range map[string]string{"wait=0": "wait=0", "respond-async": "", "wait=soon": "", "wait": ""} {
		n.call(t, "GET", path, as("oliver", "Prefer", prefer), "").want(200).wantHeader("Preference-Applied", applied)
	}

	// Whichever comes first, the cancel or the wait: the answer is the cancelled request, and soon.
	for i, h := range []headers{as("oliver", "Prefer", "wait=100", "If-None-Match", tag), as("oliver", "Prefer", "wait=100")} {
		answered := make(chan reply, 1)
		go func() { answered <- n.call(t, "GET", path, h, "") }()
		if i == 0 {
			n.call(t, "DELETE", path, as("oliver"), "").want(200)
		}
		got := <-answered
		if r := read[assign.Request](got.want(200)); r.State != assign.Cancelled || got.took > 30*time.Second {
			t.Errorf("%s after %v", r.State, got.took)
		}
	}
}

// request returns a request with these headers, which is not sent.
func (h headers) request(t *testing.T) *http.Request {
	return (&station{Server: &httptest.Server{URL: "http://localhost"}}).request(t, "GET", "/", h, "")
}

// The preference is found in any of several headers, and is 120 s at most.
func TestPrefersWait(t *testing.T) {
	t.Parallel()
	for want, all := range map[time.Duration][]headers{
		120 * time.Second: {{"Prefer", "wait=120"}, {"Prefer", "wait=121"}, {"Prefer", "wait=99999999999999999999999"}},
		7 * time.Second: {{"Prefer", "respond-async, wait=7"}, {"Prefer", "respond-async", "Prefer", "Wait = 7"}, {"Prefer", `wait="7"; x=y`},
			{"Prefer", "wait=7, wait=9"}},
		0: {{"Prefer", "wait=0"}},
	} {
		for _, h := range all {
			if got, asked := prefersWait(h.request(t)); got != want || !asked {
				t.Errorf("%v: %v, %v", h, got, asked)
			}
		}
	}
	for _, h := range []headers{nil, {"Prefer", "wait=-1"}, {"Prefer", "waiting=3"}, {"Prefer", "wait=1.5"}} {
		if got, asked := prefersWait(h.request(t)); asked {
			t.Errorf("%v: %v", h, got)
		}
	}
}

// A held answer is sent when the node shuts down, also for a call that comes then.
func TestHeldAnswersEndWithTheNode(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	r := n.pendingRequest(t, "verify", "oliver")
	answered := make(chan reply, 1)
	path := fmt.Sprintf("/api/v1/requests/%d", r.ID)
	go func() { answered <- n.call(t, "GET", path, as("oliver", "Prefer", "wait=100"), "") }()
	await(t, "the answer is held", func() bool { return n.open.Load() == 1 })
	n.drain()
	(<-answered).want(200)
	for range 10 {
		if got := n.call(t, "GET", path, as("oliver", "Prefer", "wait=100"), "").want(200); got.took > 30*time.Second {
			t.Errorf("held for %v", got.took)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	r := n.pendingRequest(t, "verify", "oliver")
	path := fmt.Sprintf("/api/v1/requests/%d", r.ID)
	n.call(t, "DELETE", path, as("tracy"), "").refused(404, "not-found")
	n.call(t, "DELETE", path, as("oliver", "X-Getwork-Instance", "i1"), "").refused(404, "not-found")
	for _, h := range []headers{as("oliver"), as("oliver"), manager()} {
		got := read[assign.Request](n.call(t, "DELETE", path, h, "").want(200).wantHeader("Retry-After", ""))
		if got.State != assign.Cancelled || got.Requested != 0 || got.Position != nil || got.CompletedAt == nil {
			t.Errorf("cancelled: %+v", got)
		}
	}
	ended := read[assign.Request](n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver"), `{"count":1}`).want(201))
	n.call(t, "DELETE", fmt.Sprintf("/api/v1/requests/%d", ended.ID), as("oliver"), "").refused(409, "not-pending")
	for _, id := range []string{"999", "0", "-1", "x", "1x", "99999999999999999999", "%31x"} {
		n.call(t, "DELETE", "/api/v1/requests/"+id, as("oliver"), "").refused(404, "not-found")
		n.call(t, "GET", "/api/v1/requests/"+id, as("oliver"), "").refused(404, "not-found")
	}
	n.call(t, "GET", "/api/v1/requests/%31", as("oliver"), "").want(200)
}

func TestDisposition(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	got := read[assign.Request](n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", "Prefer", "wait=60"), `{"count":5}`).want(201))
	dispose := func(i int, body string, h ...string) reply {
		return n.call(t, "POST", fmt.Sprintf("/api/v1/work/%d/disposition", got.Work[i].ID), append(as("oliver"), h...), body)
	}
	for body, field := range map[string]string{`{}`: "outcome", `{"outcome":"reassign"}`: "outcome", `{"outcome":"return"}`: "after",
		`{"outcome":"return","after":"73h"}`: "after", `{"outcome":"return","after":"-1s"}`: "after", `{"outcome":"complete","after":"0s"}`: "after",
		`{"outcome":"never","note":"` + strings.Repeat("n", 4097) + `"}`: "note"} {
		dispose(0, body).refused(400, "invalid", field)
	}
	dispose(0, `{"outcome":"never","note":"a NUL: \u0000"}`).refused(400, "invalid")
	dispose(0, `{"outcome":"never","note":"half of a character: \ud83d"}`).refused(400, "invalid")

	for range 2 {
		w := read[assign.Work](dispose(0, `{"outcome":"complete","note":"fine"}`).want(200))
		if w.State != "completed" || *w.Note != "fine" || w.ClosedAt == nil || w.AvailableAt != nil {
			t.Errorf("completed: %+v", w)
		}
	}
	dispose(0, `{"outcome":"never"}`).refused(409, "already-closed")
	for range 2 {
		w := read[assign.Work](dispose(1, `{"outcome":"return","after":"72h"}`).want(200))
		if w.State != "returned" || w.AvailableAt.Sub(*w.ClosedAt).Round(time.Minute) != 72*time.Hour {
			t.Errorf("returned: %+v", w)
		}
	}
	dispose(1, `{"outcome":"return","after":"1h"}`).refused(409, "already-closed")
	dispose(2, `{"outcome":"return","after":"0s"}`).want(200)
	n.call(t, "POST", fmt.Sprintf("/api/v1/work/%d/disposition", got.Work[3].ID), as("tracy"), `{"outcome":"complete"}`).refused(404, "not-found")
	n.call(t, "POST", fmt.Sprintf("/api/v1/work/%d/disposition", got.Work[3].ID), manager(), `{"outcome":"never"}`).want(200)
	n.exec(t, `update getwork.work set lease = '1 s', lease_expires_at = clock_timestamp() - interval '1 s' where id = $1`, got.Work[4].ID)
	dispose(4, `{"outcome":"complete"}`).refused(409, "lease-lost")
	n.call(t, "POST", "/api/v1/work/999/disposition", as("oliver"), `{"outcome":"complete"}`).refused(404, "not-found")
}

// The pipeline's tag changes only when the pipeline does, however long its requests wait.
func TestPipelineETag(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.newTask(t, "later", five, `,"paused":true`)
	read := func(status int, h ...string) reply {
		return n.call(t, "GET", "/api/v1/pipeline", as("oliver", h...), "").want(status)
	}
	empty := read(200).header.Get("ETag")
	read(304, "If-None-Match", empty).wantHeader("ETag", empty).wantHeader("Cache-Control", "no-store")
	work := n.take(t, "verify", "oliver", 2)
	held := read(200, "If-None-Match", empty).header.Get("ETag")
	ahead := n.pendingRequest(t, "later", "tracy")
	n.pendingRequest(t, "later", "oliver")
	waits := read(200, "If-None-Match", held).header.Get("ETag")
	n.call(t, "DELETE", "/api/v1/requests/"+fmt.Sprint(ahead.ID), as("tracy"), "").want(200) // oliver's place in line changes
	read(304, "If-None-Match", `"other", `+waits)
	n.call(t, "POST", "/api/v1/work/"+fmt.Sprint(work[0].ID)+"/disposition", as("oliver"), `{"outcome":"complete"}`).want(200)
	read(200, "If-None-Match", waits)
	if empty == held || held == waits || empty == "" {
		t.Errorf("tags %s, %s, %s", empty, held, waits)
	}
}
