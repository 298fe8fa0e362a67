package hook

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Events are recorded by the transactions that they happen in, and by no others; without hooks nothing is done for them.
func TestRecorded(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	d := newDesk(t, nil)
	const on = `select (tgenabled <> 'D')::text from pg_trigger where tgname = 'work_closed'`
	if d.assign("before"); d.text(on) != "false" {
		t.Error("the triggers are on without a hook")
	}
	w, _ := d.hook()
	other := "other"
	if _, _, err := d.Create(t.Context(), assign.NewWebhook{Task: &other, URL: d.receiver.URL}, "mia"); !assign.IsRefusal(err, assign.Invalid) {
		t.Errorf("a hook of a task that is not there: %v", err)
	}
	tx, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `insert into getwork.work (task_id, item, user_name) values (1, 'not', 'oliver')`); err != nil {
		t.Fatal(err)
	}
	_ = tx.Rollback(t.Context())
	d.assign("a")
	d.exec(`update getwork.work set lease_expires_at = clock_timestamp(), lease = '1s' where item = 'a'`) // an extension is no event
	d.exec(`update getwork.work set state = state`)                                                       // nor is a change that leaves it held
	d.close("a")
	d.exec(`insert into getwork.work (task_id, item, user_name, deadline) values (1, 'b', 'oliver', '2026-12-24 18:00+01')`)
	d.exec(`update getwork.work set state = 'expired', closed_at = clock_timestamp(), closed_xid = pg_current_xact_id() where item = 'b'`)
	d.exec(`insert into getwork.run (task_id, version, node) values (1, 1, 'n1')`)
	d.exec(`update getwork.run set state = 'failed', finished_at = clock_timestamp(), error = 'a secret of the bank'`)
	d.exec(`insert into getwork.run (task_id, version, node) values (1, 1, 'n1')`)
	d.exec(`update getwork.run set state = 'lost', finished_at = clock_timestamp() where state = 'running'`)
	got := d.text(`select string_agg(type || ' ' || item, ', ' order by id) from getwork.hook_event`)
	if want := "work.assigned a, work.closed a, work.assigned b, work.expired b, run.failed , run.failed "; got != want {
		t.Errorf("events: %s\nwant:   %s", got, want)
	}
	got = d.text(`select string_agg(item || ' ' || coalesce(body #>> '{data,deadline}', 'none'), ', ' order by id) from getwork.hook_event where item <> ''`)
	const due = "2026-12-24T17:00:00.000000Z"
	if want := "a none, a none, b " + due + ", b " + due; got != want {
		t.Errorf("deadlines: %s\nwant:      %s", got, want)
	}
	if d.text(`select (string_agg(body::text, '') like '%secret%')::text from getwork.hook_event`) != "false" {
		t.Error("an event has the text of an error")
	}
	if err := d.Delete(t.Context(), w.ID, anybody); err != nil {
		t.Fatal(err)
	}
	if d.text(on) != "false" {
		t.Error("the triggers are on without a hook any more")
	}
	if err := d.sender.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.states() != "" {
		t.Errorf("events of a deleted hook are left: %s", d.states())
	}
}

// A closing is sent with the code that whoever let go of the work named, if they did.
func TestClosingHasItsCode(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.hook(assign.WorkAssignedEvent, assign.WorkClosedEvent)
	for _, item := range []string{"named", "none"} {
		d.assign(item)
		d.exec(`update getwork.work set code = nullif($1, 'none') where item = $1`, item)
		d.close(item)
		d.once()
		d.once() // of one item one at a time
	}
	var got []string
	for _, m := range d.receiver.got {
		var body struct {
			Data struct{ Code *string }
		}
		if err := json.Unmarshal([]byte(m.body), &body); err != nil {
			t.Fatal(err)
		}
		code := "without a code"
		if body.Data.Code != nil {
			code = *body.Data.Code
		}
		got = append(got, m.Type+" "+m.Data.Item+": "+code)
	}
	want := []string{"work.assigned named: without a code", "work.closed named: named", "work.assigned none: without a code", "work.closed none: without a code"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

// Of one item one event is sent at a time, in their order; another item's don't wait for it.
func TestOrderPerItem(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	bad.Store(true)
	d := newDesk(t, func(w http.ResponseWriter, r *http.Request) {
		if bad.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	d.hook()
	d.assign("a")
	d.close("a")
	d.once()
	d.due()
	d.once()
	if diff := cmp.Diff([]string{"work.assigned a", "work.assigned a"}, d.receiver.all()); diff != "" {
		t.Errorf("sent while the first fails (-want +got):\n%s", diff)
	}
	first, second := d.receiver.got[0].header, d.receiver.got[1].header
	if first.Get("webhook-id") != second.Get("webhook-id") || first.Get("webhook-id") == "" {
		t.Errorf("ids of the same event: %q and %q", first.Get("webhook-id"), second.Get("webhook-id"))
	}
	bad.Store(false)
	d.due()
	d.once()
	d.once()
	if want := "delivered 3, delivered 1"; d.states() != want {
		t.Errorf("states: %s, want %s", d.states(), want)
	}
	if got := d.receiver.all(); got[len(got)-1] != "work.closed a" {
		t.Errorf("sent: %v", got)
	}
}

// A hook that fails is left alone for a while, then tried with one event, and other hooks don't wait for it.
func TestFailingHookWaits(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	bad.Store(true)
	d := newDesk(t, func(w http.ResponseWriter, r *http.Request) {
		if bad.Load() && r.URL.Path == "/getwork" {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	d.hook(assign.WorkAssignedEvent)
	if _, _, err := d.Create(t.Context(), assign.NewWebhook{URL: d.receiver.URL + "/other", Events: []string{assign.WorkClosedEvent}}, "ada"); err != nil {
		t.Fatal(err)
	}
	for _, item := range []string{"a", "b", "c"} {
		d.assign(item)
	}
	d.once()
	if n := len(d.receiver.all()); n != 3 {
		t.Fatalf("%d attempts, want one for each item", n)
	}
	d.close("a")
	d.once()
	if got := d.receiver.all(); len(got) != 4 || got[3] != "work.closed a" {
		t.Errorf("sent: %v", got)
	}
	if d.text(`select (retry_at > clock_timestamp() + interval '9 minutes')::text from getwork.hook where failures > 0`) != "true" {
		t.Error("the receiver asked for ten minutes, and does not get them")
	}
	shown := func() (retry, next *time.Time) {
		t.Helper()
		hooks, err := d.List(t.Context(), Which{Own: true})
		if err != nil || len(hooks) != 1 {
			t.Fatal(hooks, err)
		}
		waiting, err := d.Deliveries(t.Context(), hooks[0].ID, "waiting", 0, 10, anybody)
		if err != nil || len(waiting) == 0 {
			t.Fatal(waiting, err)
		}
		return hooks[0].RetryAt, waiting[0].NextAt
	}
	if retry, next := shown(); retry == nil || time.Until(*retry) < 9*time.Minute || next == nil || next.Before(*retry) {
		t.Errorf("the hook is said to be tried again at %v, an event of it at %v", retry, next)
	}
	d.due()
	if retry, next := shown(); retry != nil || next != nil {
		t.Errorf("what is due is said to be tried again at %v and %v", retry, next)
	}
	d.once()
	if n := len(d.receiver.all()); n != 5 {
		t.Errorf("%d attempts in all, want 5: a hook that failed is tried with one event", n)
	}
	bad.Store(false)
	d.due()
	d.once()
	d.once()
	if got := d.text(`select string_agg(distinct state, ' ') from getwork.hook_event`); got != "delivered" {
		t.Errorf("in the end: %s", got)
	}
}

// A receiver that asks to be left alone is, also if it accepts another event that was under way by then.
func TestRetryAfterStays(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var calls atomic.Int32
	d := newDesk(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		<-gate
	})
	d.hook(assign.WorkAssignedEvent)
	for _, item := range []string{"a", "b"} {
		d.assign(item)
	}
	var sending sync.WaitGroup
	if err := d.sender.round(t.Context(), &sending, make(chan struct{}, 1)); err != nil {
		t.Fatal(err)
	}
	wait(t, "result of the first", func(context.Context) bool { return d.text(`select failures::text from getwork.hook`) == "1" })
	close(gate)
	sending.Wait()
	const on = `select (retry_at > clock_timestamp() + interval '9 minutes')::text from getwork.hook`
	if got := d.text(`select string_agg(state, ', ' order by state) from getwork.hook_event`); got != "delivered, waiting" || d.text(on) != "true" {
		t.Errorf("states: %s; it still waits: %s", got, d.text(on))
	}
	d.due()
	d.once()
	if got := d.text(`select failures || ' ' || (retry_at is null) from getwork.hook`); got != "0 true" {
		t.Errorf("after a success at its time: %s", got)
	}
}

// A result counts only as long as no other node has begun again; a node that froze before it sent sends nothing.
func TestLease(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	began := make(chan struct{}, 10)
	var calls atomic.Int32
	d := newDesk(t, func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		if calls.Add(1) == 1 {
			<-gate
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	d.hook()
	d.assign("a")
	var slow sync.WaitGroup
	if err := d.sender.round(t.Context(), &slow, make(chan struct{}, 1)); err != nil {
		t.Fatal(err)
	}
	<-began
	other := d.newSender()
	d.onceBy(other) // the lease holds
	if d.states() != "waiting 1" {
		t.Errorf("during the lease: %s", d.states())
	}
	d.due() // it is over
	d.onceBy(other)
	if d.states() != "delivered 2" {
		t.Errorf("after the lease: %s", d.states())
	}
	close(gate)
	slow.Wait()
	if d.states() != "delivered 2" || d.text(`select failures::text from getwork.hook`) != "0" {
		t.Errorf("the first node's late result counted: %s", d.states())
	}
}

// What was not delivered within three days is dead, and sent again when somebody says so.
func TestDeadAndRedriven(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("a secret of the receiver, which nobody is shown"))
	})
	w, _ := d.hook(assign.WorkAssignedEvent)
	d.assign("a")
	d.assign("b")
	var waits []string
	for range 9 {
		d.once()
		d.due()
		d.exec(`update getwork.hook set failures = 0, retry_at = null`)
		waits = append(waits, d.text(`select attempts || ': ' || coalesce(error, '') from getwork.hook_event where item = 'a'`))
	}
	if got := waits[8]; got != "9: answered 418" {
		t.Errorf("after nine attempts: %s", got)
	}
	d.once()
	// 5 s × 4^9 is more than eight hours.
	if d.text(`select (next_at - clock_timestamp() between interval '7 hours 55 minutes' and interval '9 hours 40 minutes')::text from getwork.hook_event where item = 'a'`) != "true" {
		t.Errorf("the next attempt is %s", d.text(`select (next_at - clock_timestamp())::text from getwork.hook_event where item = 'a'`))
	}
	d.exec(`update getwork.hook_event set since = since - interval '71 hours 59 minutes'`)
	d.exec(`update getwork.hook_event set since = since - interval '2 minutes' where item = 'a'`)
	if err := d.sender.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "dead 10, waiting 10"; d.states() != want || d.sender.Dead.Load() != 1 {
		t.Errorf("states: %s, want %s; %d counted", d.states(), want, d.sender.Dead.Load())
	}
	if hours := d.sender.Oldest.Load() / 3.6e12; hours != 71 {
		t.Errorf("the oldest event has waited for %d hours", hours)
	}
	dead, err := d.Deliveries(t.Context(), w.ID, "dead", 0, 10, anybody)
	if err != nil || len(dead) != 1 || dead[0].Item != "a" || *dead[0].Status != 418 {
		t.Fatalf("dead: %+v, %v", dead, err)
	}
	if n, err := d.Redrive(t.Context(), w.ID, []int64{dead[0].ID + 1}, anybody); n != 0 || err != nil {
		t.Errorf("redrive of one that is not dead: %d, %v", n, err)
	}
	if n, err := d.Redrive(t.Context(), w.ID, nil, anybody); n != 1 || err != nil {
		t.Fatalf("redrive: %d, %v", n, err)
	}
	before := len(d.receiver.all())
	d.once()
	if got := d.receiver.all()[before:]; !slices.Equal(got, []string{"work.assigned a"}) {
		t.Errorf("sent after the redrive: %v", got)
	}
	if err := d.sender.tidy(t.Context()); err != nil || strings.Contains(d.states(), "dead") {
		t.Errorf("a redriven event has three days again: %s, %v", d.states(), err)
	}
}

// failsWhile is a receiver that answers 502 while it is bad.
func failsWhile(bad *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if bad.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	}
}

// A test goes at once, before all others and while the hook waits after failures.
func TestTestGoesFirst(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	bad.Store(true)
	d := newDesk(t, failsWhile(&bad))
	w, _ := d.hook()
	d.assign("a")
	d.once()
	d.once()
	if n := len(d.receiver.all()); n != 1 {
		t.Fatalf("%d attempts, want 1", n)
	}
	bad.Store(false)
	id, err := d.Test(t.Context(), w.ID, anybody)
	if err != nil {
		t.Fatal(err)
	}
	d.once()
	if m := d.receiver.last(); m.Type != assign.WebhookTestEvent {
		t.Errorf("sent: %v", d.receiver.all())
	}
	if all, err := d.Deliveries(t.Context(), w.ID, "", 0, 1, anybody); err != nil || len(all) != 1 || all[0].ID != id || all[0].State != "delivered" {
		t.Errorf("deliveries: %+v, %v", all, err)
	}
}

// A test does not wait for a former one that failed: it is for finding out whether the receiver is well by now.
func TestTestAfterTest(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	bad.Store(true)
	d := newDesk(t, failsWhile(&bad))
	w, _ := d.hook()
	for _, fails := range []bool{true, true, false} {
		bad.Store(fails)
		if _, err := d.Test(t.Context(), w.ID, anybody); err != nil {
			t.Fatal(err)
		}
		d.once()
	}
	if want := "waiting 1, waiting 1, delivered 1"; d.states() != want {
		t.Errorf("states: %s, want %s", d.states(), want)
	}
}

// While Run runs, events go out by themselves, and its end leaves none half done.
func TestRun(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	d := newDesk(t, nil)
	d.hook()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.sender.Run(ctx) }()
	for _, item := range []string{"a", "b"} {
		d.assign(item)
		d.close(item)
	}
	wait(t, "delivery of all", func(context.Context) bool { return d.states() == "delivered 1, delivered 1, delivered 1, delivered 1" })
	cancel()
	if err := <-done; err != nil || d.sender.Delivered.Load() != 4 {
		t.Errorf("%v; %d delivered", err, d.sender.Delivered.Load())
	}
}
