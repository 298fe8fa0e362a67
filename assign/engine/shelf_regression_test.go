package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// Faults that a review of the shelf found, each with the right behaviour.

// The query database is away: a click on a fresh shelf of a task with a recheck was refused with an internal error instead of
// being recorded (or served).
func TestClicksAreRecordedThoughTheRecheckIsAway(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, a, db, 6, nil)
	a.endedRequest(t, a.click(t, "task", "ann", 1).ID)
	b := startNode(t, url, nodeOptions{queries: "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"})
	r, err := b.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "bob"}, Count: 1})
	if err != nil {
		t.Fatalf("the primary is up, but the click fails: %v (requests recorded of bob: %d)", err,
			query[int](t, db, `select count(*) from getwork.work_requested where user_name = 'bob'`))
	}
	if r.State != assign.Pending {
		t.Errorf("bob's request is %s", r.State)
	}
}

// A recheck takes long: clicks are recorded, and served when it is over.
func TestClicksDoNotWaitForASlowRecheck(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 6, func(s *assign.Settings) {
		s.Recheck = `select id as item from loan, (select pg_advisory_xact_lock_shared(7) offset 0) w where open and id = any($1::integer[])`
	})
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	slow, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Release()
	if _, err := slow.Exec(t.Context(), `select pg_advisory_lock(7)`); err != nil {
		t.Fatal(err)
	}
	r, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "bob"}, Count: 1})
	if err != nil || r.State != assign.Pending {
		t.Fatalf("beside a recheck that goes on: %s, %v", r.State, err)
	}
	if _, err := slow.Exec(t.Context(), `select pg_advisory_unlock(7)`); err != nil {
		t.Fatal(err)
	}
	if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("bob got %s", r.State)
	}
}

// An item comes back to a fresh shelf while no slot is free for the recheck: lingering requests were not served when a slot
// became free.
func TestWokenWhileAllSlotsAreTaken(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{look: 100 * time.Millisecond})
	db := pool(t, url)
	recheckedTask(t, n, db, 1, func(s *assign.Settings) { s.Slots = 2; s.RerunAfter = assign.Duration(time.Hour) })
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	bob := n.click(t, "task", "bob", 1)
	bob = n.endedRequest(t, bob.ID)
	cyd, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "cyd"}, Count: 1, Linger: assign.Duration(2 * time.Hour)})
	if err != nil || cyd.State != assign.Pending {
		t.Fatal(err, cyd.State)
	}
	n.idle(t)
	for range n.MaxRuns {
		n.slots.takeFreeSlot(t.Context())
	}
	zero := assign.Duration(0)
	if _, err := n.Dispose(t.Context(), bob.Work[0].ID, assign.Disposition{Outcome: "return", After: &zero}, assign.Holder{User: "bob"}, false); err != nil {
		t.Fatal(err)
	}
	await(t, "the look has found no place", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.slots.parked[cyd.TaskID] && n.loops[cyd.TaskID] == nil
	})
	for range n.MaxRuns {
		n.slots.giveSlot()
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(30*time.Second))
	defer cancel()
	r, err := n.Feed.Await(ctx, cyd.ID, assign.Holder{}, true, func(r *assign.Request) bool { return r.State != assign.Pending })
	if err != nil || r.State == assign.Pending {
		t.Fatalf("cyd still lingers (%s) though a place of the item and slots for rechecks are free; look_after in %s", r.State,
			query[time.Duration](t, db, `select look_after - clock_timestamp() from getwork.work_requested where id = $1`, cyd.ID))
	}
}

// A round ignored a recheck that was changed before it took its lock.
func TestRecheckChangedBeforeTheLock(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 6, nil)
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from getwork.task_state for no key update`); err != nil {
		t.Fatal(err)
	}
	got := make(chan assign.Request, 1)
	go func() { got <- n.click(t, "task", "bob", 1) }()
	await(t, "the round waits for the lock", func() bool {
		return query[bool](t, db, `select exists (select from pg_locks join pg_stat_activity using (pid) where datname = current_database() and not granted)`)
	})
	// as UpdateTask does: only item 5 matches from now on
	for _, s := range []string{
		`create temp table v as select * from getwork.task_version`,
		`update v set version = 2, recheck = 'select 5 as item where ''5'' = any($1)'`,
		`insert into getwork.task_version select * from v`,
		`update getwork.task_state set version = 2`,
	} {
		if _, err := tx.Exec(t.Context(), s); err != nil {
			t.Fatal(s, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-got; fmt.Sprint(items(r)) != "[5]" {
		t.Errorf("by the recheck in force only 5 matches; bob got %s %v", r.State, items(r))
	}
}

// The task had no recheck when it was read, but has one when the lock is taken.
func TestRecheckAddedBeforeTheLock(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 6, func(s *assign.Settings) { s.Recheck = "" })
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	execute(t, db, `update loan set open = false where id < 5`)
	task, err := n.Task(t.Context(), "task")
	if err != nil {
		t.Fatal(err)
	}
	old := task.Settings
	if _, err := n.UpdateTask(t.Context(), "task", task.Version, "a manager", func(s *assign.Settings) error {
		s.Recheck = `select id as item from loan where open and id = any($1::integer[])`
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) select task_id, 'bob', 1, 1 from getwork.task_state returning id`)
	if err := n.serveNow(t.Context(), task.ID, old); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, id); fmt.Sprint(items(r)) != "[5]" {
		t.Errorf("bob got %s %v, want [5]", r.State, items(r))
	}
}

// A recheck refuses a run's whole result: nothing was held, but the reason was all_held.
func TestARunOfWhichNothingMatchesAnyMore(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 3, func(s *assign.Settings) { s.Recheck = `select x as item from unnest($1) x where false` })
	if r := n.endedRequest(t, n.click(t, "task", "bob", 1).ID); why(r) != assign.NoMatch {
		t.Errorf("bob got %s %s, want no_match: nothing is held", r.State, why(r))
	}
}

// fresh_for is shorter than the query: after each run another began for nobody.
func TestNoRunForNobodyAfterALongOne(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "task", `select i as item from (select pg_sleep(4)) w, generate_series(1, 9) i order by i`, fresh(200*time.Millisecond))
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	if s := query[string](t, db, `select string_agg(state, ' ' order by id) from getwork.run`); s != "finished" {
		t.Errorf("one click, runs: %s", s)
	}
}

// A round locked waiting requests before it claimed keys; recording binds keys (which locks the request) after claiming them.
func TestKeysAndRoundsLockInOneOrder(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newInbox(t, n, "inbox", nil)
	p, err := n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	before := query[int](t, db, `select last_value::int from getwork.round`)
	// another node's recordAndServe without a round: claimKeys ... bindKeys
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `insert into getwork.idempotency_key (task_id, user_name, key, body) values ($1, 'ann', 'k', 'count=1 linger=1h')`, task.ID); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour), Key: "k"})
		done <- err
	}()
	await(t, "the round waits for the key", func() bool {
		return query[bool](t, db, `select exists (select from pg_locks join pg_stat_activity using (pid) where datname = current_database() and not granted)`)
	})
	if _, err = tx.Exec(t.Context(), `update getwork.idempotency_key set request_id = $1 where key = 'k'`, p.ID); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := query[int](t, db, `select last_value::int from getwork.round`) - before; n != 1 {
		t.Errorf("%d rounds instead of one: PostgreSQL has ended one that met the other", n)
	}
}

// During the back-off after a failed recheck, each click executed the recheck again (twice).
func TestFailedRecheckIsLeftAloneForAWhile(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table zero as select 1 as z`)
	recheckedTask(t, n, db, 6, func(s *assign.Settings) {
		s.Recheck = `select id as item from loan, zero where 1/z = 1 and open and id = any($1::integer[])`
	})
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `update zero set z = 0`)
	n.endedRequest(t, n.click(t, "task", "bob", 1).ID)
	n.idle(t)
	execute(t, db, `update getwork.task_state set failed_until = failed_until + interval '1 hour'`) // so that it is not over before the last click
	for range 5 {
		n.endedRequest(t, n.click(t, "task", "bob", 1).ID)
	}
	if f := query[int](t, db, `select failures from getwork.task_state`); f > 2 {
		t.Errorf("six quick clicks: %d failures, back-off until in %s; after the first, clicks should end at once", f,
			query[time.Duration](t, db, `select failed_until - clock_timestamp() from getwork.task_state`))
	}
}

// The query database is away and the shelf fresh: no retry delay was kept, so nothing ever ended the request.
func TestRecheckThatIsAwayIsRetried(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, a, db, 6, nil)
	a.endedRequest(t, a.click(t, "task", "ann", 1).ID)
	a.stop()
	startNode(t, url, nodeOptions{look: 100 * time.Millisecond, queries: "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"})
	execute(t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) select task_id, 'bob', 1, 1 from getwork.task_state`)
	await(t, "the next try is put off", func() bool { return query[int](t, db, `select retries from getwork.task_state`) > 1 })
}

// One item at the top of the shelf does not match any more, and the work that was handed out behind it still matches (it is
// held): each click took the assign lock and rechecked again and again.
func TestRecheckLeavesOutWhatIsHeld(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 6000, func(s *assign.Settings) { s.MaxCandidates = 10_000; s.MaxRequest = 1000 })
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `update loan set open = false where id = 2`)
	for range 4 {
		n.endedRequest(t, n.click(t, "task", "ann", 1000).ID)
	}
	n.idle(t)
	for range 3 {
		before := query[int](t, db, `select last_value::int from getwork.round`)
		n.click(t, "task", "bob", 1)
		if rounds := query[int](t, db, `select last_value::int from getwork.round`) - before; rounds > 1 {
			t.Errorf("one click for one item took the assign lock %d times", rounds)
		}
	}
}

// A request came between the recheck of a run's result and its round: it ended partial though there was more, and a second
// run started though the shelf was full.
func TestWhoComesAfterTheRecheckWaitsForTheShelf(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	q := newGate(StepQueried)
	n := startNode(t, url, nodeOptions{steps: q.hold})
	db := pool(t, url)
	recheckedTask(t, n, db, 1500, func(s *assign.Settings) { s.MaxCandidates = 2000; s.MaxRequest = 1000 })
	a := n.click(t, "task", "ann", 1)
	<-q.reached
	b := n.click(t, "task", "bob", 700)
	c := n.click(t, "task", "cyd", 1)
	close(q.open)
	n.endedRequest(t, a.ID)
	if r := n.endedRequest(t, b.ID); r.State != assign.Assigned {
		t.Errorf("bob wanted 700 of 1499: %s %d", r.State, r.Assigned)
	}
	n.endedRequest(t, c.ID)
	n.idle(t)
	if got := runs(t, db); got != 1 {
		t.Errorf("%d runs, though the first left 1000 that match on a shelf fresh for an hour", got)
	}
}

// A manager corrects the recheck, or pauses the task, while the recheck is executed for a waiting request. When it failed, it failed
// the request, and a back-off began that the manager had ended. What waits when a task is paused stays.
func TestNobodyFailsByAnOldRecheck(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, changes := range map[string]func(*testing.T, *node, *pgxpool.Pool, int64) (failed func()){
		"corrected": func(t *testing.T, n *node, _ *pgxpool.Pool, _ int64) func() {
			if _, err := n.change(t, "task", func(s *assign.Settings) {
				s.Recheck = `select id as item from loan where open and id = any($1::integer[])`
			}); err != nil {
				t.Fatal(err)
			}
			return func() {}
		},
		"paused": func(t *testing.T, n *node, db *pgxpool.Pool, bob int64) func() {
			pause := func(paused bool) {
				if _, err := n.SetPaused(t.Context(), "task", paused, 0, "a manager"); err != nil {
					t.Fatal(err)
				}
			}
			pause(true)
			return func() {
				n.idle(t)
				if s := query[string](t, db, `select state from getwork.work_requested where id = $1`, bob); s != "pending" {
					t.Errorf("while the task is paused bob is %s", s)
				}
				execute(t, db, `update zero set z = 1`)
				pause(false)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			db := pool(t, url)
			execute(t, db, `create table zero as select 1 as z`)
			recheckedTask(t, n, db, 6, func(s *assign.Settings) {
				s.Recheck = `select id as item from loan, zero, (select pg_advisory_xact_lock_shared(7) offset 0) l where 1/z = 1 and open and id = any($1::integer[])`
			})
			n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
			n.idle(t)
			holding, err := db.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer holding.Release()
			if _, err := holding.Exec(t.Context(), `select pg_advisory_lock(7)`); err != nil {
				t.Fatal(err)
			}
			execute(t, db, `update zero set z = 0`)
			id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) select task_id, 'bob', 1, 1 from getwork.task_state returning id`)
			n.Wake(query[int64](t, db, `select task_id from getwork.task_state`))
			await(t, "the recheck waits", func() bool {
				return query[bool](t, db, `select exists (select from pg_locks where database = (select oid from pg_database where datname = current_database()) and locktype = 'advisory' and not granted)`)
			})
			failed := changes(t, n, db, id)
			if _, err := holding.Exec(t.Context(), `select pg_advisory_unlock(7)`); err != nil {
				t.Fatal(err)
			}
			failed()
			if r := n.endedRequest(t, id); r.State != assign.Assigned {
				t.Errorf("bob is %s by a recheck that is not the task's any more; back-off %v", r.State,
					query[*time.Duration](t, db, `select failed_until - clock_timestamp() from getwork.task_state`))
			}
		})
	}
}
