package hook

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// look does what Run does each second before it sends.
func (d *desk) look(s *Sender) {
	d.t.Helper()
	_, at, err := s.used(d.t.Context())
	if err == nil {
		err = s.heal(d.t.Context(), at)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// After the database's clock was set back by two hours, web hooks stand still for no longer than a lease, and no attempt overlaps
// another.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	server, clock := schematest.ClockServer(t)
	gate, began := make(chan struct{}), make(chan struct{}, 1)
	var bad atomic.Bool
	bad.Store(true)
	d := newDeskOn(t, server.URL("getwork"), func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/slow":
			began <- struct{}{}
			<-gate
		case bad.Load():
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open) // or the receiver would not close after a failure
	failing, _ := d.hook(assign.WorkAssignedEvent)
	slow, _, err := d.Create(t.Context(), assign.NewWebhook{URL: d.receiver.URL + "/slow", Events: []string{assign.WorkClosedEvent}}, "ada")
	if err != nil {
		t.Fatal(err)
	}
	state := func(item string) string {
		return d.text(`select string_agg(state || ' ' || attempts, ', ' order by id) from getwork.hook_event where item = $1`, item)
	}

	clock.Set(2 * time.Hour)
	d.look(d.sender)
	d.assign("failed")
	d.once()
	d.exec(`update getwork.hook set retry_at = clock_timestamp() + interval '50 seconds' where id = $1`, failing.ID) // not 1 s, which may pass
	d.assign("recorded")
	d.exec(`insert into getwork.hook_event (hook_id, task_id, item, type, body) values ($1, 1, 'sent', 'work.closed', '{}')`, slow.ID)
	var sending sync.WaitGroup
	other := d.newSender()
	d.look(other)
	if err := other.round(t.Context(), &sending, make(chan struct{}, 1)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-began:
	case <-time.After(timeout.Scale(20 * time.Second)):
		t.Fatal("nothing is sent to the slow receiver")
	}
	if got := state("failed") + ", " + state("recorded") + ", " + state("sent"); got != "waiting 1, waiting 0, waiting 1" {
		t.Fatalf("before the clock is set back: %s", got)
	}

	clock.Set(0)
	bad.Store(false)
	d.exec(`
insert into getwork.hook_event (hook_id, task_id, item, type, body, attempts, next_at)
values ($1, 1, 'put off', 'work.assigned', '{}', 9, clock_timestamp() + interval '9 hours')`, failing.ID)
	d.look(d.sender)
	d.once()
	if got := state("recorded") + ", " + state("sent"); got != "delivered 1, waiting 1" {
		t.Errorf("at once after the clock was set back: %s", got)
	}
	const late = `select coalesce(string_agg(item, ', '), 'none') from getwork.hook_event where state = 'waiting' and next_at > clock_timestamp() + interval '30 seconds' and item <> 'put off'`
	if got := d.text(late); got != "none" {
		t.Errorf("due only after half a minute: %s", got)
	}
	if d.text(`select (next_at > clock_timestamp() + interval '8 hours')::text from getwork.hook_event where item = 'put off'`) != "true" {
		t.Error("what failed by the right clock does not wait for its time any more")
	}
	open()
	sending.Wait()
	if got := state("sent"); got != "delivered 1" {
		t.Errorf("what was under way: %s", got)
	}

	// The first look of a node comes afterwards, and a transaction that had begun before commits.
	failed := func(retry time.Duration) {
		d.exec(`update getwork.hook set failures = 1, retry_at = clock_timestamp() + $2::bigint * interval '1 second' where id = $1`, failing.ID, int64(retry.Seconds()))
	}
	retries := func() string {
		return d.text(`select (retry_at <= clock_timestamp())::text from getwork.hook where id = $1`, failing.ID)
	}
	failed(50 * time.Minute)
	d.look(d.newSender())
	if retries() != "false" {
		t.Error("a node that starts sends to a receiver that asked to be left alone")
	}
	d.exec(`
insert into getwork.hook_event (hook_id, task_id, item, type, body, since, next_at)
values ($1, 1, 'late', 'work.assigned', '{}', clock_timestamp() + interval '2 hours', clock_timestamp() + interval '2 hours')`, failing.ID)
	d.exec(`
insert into getwork.hook_event (hook_id, task_id, item, type, body, attempts, next_at)
values ($1, 1, 'failed late', 'work.assigned', '{}', 9, clock_timestamp() + interval '11 hours')`, failing.ID)
	failed(3 * time.Hour)
	if err := d.sender.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := d.text(`select string_agg(item, ', ') from getwork.hook_event where next_at > clock_timestamp() + interval '30 seconds' and state = 'waiting' and item <> 'failed'`); got != "put off" {
		t.Errorf("due only after half a minute: %s; want what failed by the right clock", got)
	}
	if retries() != "true" {
		t.Error("the hook's failure was committed late, and it still waits for the former clock")
	}
	failed(0)
	d.once()
	if got := state("late"); got != "delivered 1" {
		t.Errorf("recorded by the former clock, and committed later: %s", got)
	}
	failed(50 * time.Minute)
	d.exec(`update getwork.hook_event set next_at = clock_timestamp() + interval '50 minutes' where item = 'failed' and state = 'waiting'`)
	d.look(d.newSender())
	if retries() != "true" || d.text(late) != "none" {
		t.Errorf("after the first look of a node: the hook is tried again: %s; due only after half a minute: %s", retries(), d.text(late))
	}
}

// While Run runs, it notices by itself that the clock was set back.
func TestRunAfterClockSetBack(t *testing.T) {
	t.Parallel()
	server, clock := schematest.ClockServer(t)
	var bad atomic.Bool
	bad.Store(true)
	d := newDeskOn(t, server.URL("getwork"), failsWhile(&bad))
	d.hook(assign.WorkAssignedEvent)
	clock.Set(2 * time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.sender.Run(ctx) }()
	d.assign("a")
	wait(t, "failure", func(context.Context) bool { return d.text(`select (failures > 0)::text from getwork.hook`) == "true" })
	clock.Set(0)
	bad.Store(false)
	d.assign("b")
	wait(t, "delivery of what came afterwards", func(context.Context) bool {
		return d.text(`select string_agg(state, '' order by id) from getwork.hook_event where item = 'b'`) == "delivered"
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
