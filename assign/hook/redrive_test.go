package hook

import (
	"context"
	"net/http"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// dead gives a hook dead events, of an item each.
func (d *desk) dead(hook int64, n int) {
	d.t.Helper()
	d.exec(`
insert into getwork.hook_event (hook_id, task_id, item, type, body, state, attempts, since, ended_at)
select $1, 1, i::text, 'work.closed', '{}', 'dead', 16, clock_timestamp() - interval '80 hours', clock_timestamp() from generate_series(1, $2::integer) i`, hook, n)
}

// shortly always has too little time for another batch, and yet does not end, however slow the machine is.
type shortly struct{ context.Context }

func (shortly) Deadline() (time.Time, bool) {
	return time.Now().Add(redriveReserve - time.Millisecond), true
}

// A call that has no more time leaves what it has done, and the next one does the rest. The audit has all of it.
func TestRedriveInParts(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	w, _ := d.hook(assign.WorkClosedEvent)
	other, _ := d.hook(assign.WorkClosedEvent)
	const rest = 10
	d.dead(w.ID, 2*assign.RedriveBatch+rest)
	d.dead(other.ID, 1)
	if n, err := d.Redrive(shortly{t.Context()}, w.ID, nil, anybody); n != assign.RedriveBatch || err != nil {
		t.Fatalf("with little time: %d, %v; want a batch", n, err)
	}
	count := func(state string, hook int64) string {
		return d.text(`select count(*)::text from getwork.hook_event where state = $1 and hook_id = $2`, state, hook)
	}
	if waiting := count("waiting", w.ID); waiting != "5000" {
		t.Errorf("%s wait again", waiting)
	}
	if n, err := d.Redrive(t.Context(), w.ID, nil, anybody); n != assign.RedriveBatch+rest || err != nil {
		t.Errorf("with enough time: %d, %v", n, err)
	}
	if left, others := count("dead", w.ID), count("dead", other.ID); left != "0" || others != "1" {
		t.Errorf("%s are dead still, and %s of the other hook", left, others)
	}
	if got := d.text(`select string_agg(detail->>'count', ', ' order by n) from getwork.audit where act = 'webhook.redrive'`); got != "5000, 5000, 10" {
		t.Errorf("the audit has %s", got)
	}
}

// While a redrive is under way, other hooks' results are written. It leaves an event whose last result is just being written, and does
// not wait for it.
func TestResultsDontWaitForARedrive(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	w, _ := d.hook(assign.WorkClosedEvent)
	d.hook(assign.WorkAssignedEvent)
	d.dead(w.ID, 2)
	result, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = result.Rollback(context.Background()) }()
	if _, err := result.Exec(t.Context(), `select from getwork.hook_event where item = '1' for update`); err != nil {
		t.Fatal(err)
	}
	act, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = act.Rollback(context.Background()) }()
	if _, err := act.Exec(t.Context(), `select from getwork.audit_head for update`); err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		n   int64
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		n, err := d.Redrive(t.Context(), w.ID, nil, anybody)
		done <- outcome{n, err}
	}()
	wait(t, "wait for the audit", func(context.Context) bool { return schematest.LockWaits(t, d.db) == 1 })
	const waits = `select count(*)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%audit_head%'`
	if d.text(waits) != "1" {
		t.Fatal("the redrive waits for something else than the audit")
	}
	d.assign("a")
	d.once()
	if got := d.text(`select count(*)::text from getwork.hook where failures = 1`); got != "1" {
		t.Errorf("meanwhile the results of %s other hooks were written", got)
	}
	_ = act.Rollback(t.Context())
	if got := <-done; got.n != 1 || got.err != nil {
		t.Errorf("redriven: %d, %v; want 1", got.n, got.err)
	}
}

// Whoever changes a hook while another deletes it waits, and reads that it is gone.
func TestChangeOfADeletedHook(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	w, _ := d.hook()
	for name, change := range map[string]func(id int64) error{
		"test":    func(id int64) error { _, err := d.Test(t.Context(), id, anybody); return err },
		"rotate":  func(id int64) error { _, _, err := d.Rotate(t.Context(), id, 0, anybody); return err },
		"redrive": func(id int64) error { _, err := d.Redrive(t.Context(), id, nil, anybody); return err },
	} {
		other, _ := d.hook()
		tx, err := d.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), lockHooks); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- change(other.ID) }()
		wait(t, "wait for the lock", func(context.Context) bool { return schematest.LockWaits(t, d.db) == 1 })
		if _, err := tx.Exec(t.Context(), deleteHook, other.ID); err != nil {
			t.Errorf("%s: delete: %v", name, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("%s: delete: %v", name, err)
		}
		if err := <-done; !assign.IsRefusal(err, assign.NotFound) {
			t.Errorf("%s of a hook that is deleted meanwhile: %v", name, err)
		}
	}
	if got := d.text(`select count(*)::text from getwork.hook_event where hook_id <> $1`, w.ID); got != "0" {
		t.Errorf("%s events for nobody", got)
	}
}
