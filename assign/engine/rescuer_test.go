package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

const insertRunning = `insert into getwork.run (task_id, version, node, backend) values ($1, 1, 'dead', $2) returning id`

// A run whose backend is gone is dead, and other nodes take over at once, not only when its requests have waited for two
// seconds.
func TestDeadRunIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{Look: 300 * time.Millisecond})
	db := pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	// Without that, each takes two seconds at least; on a busy machine one may, although it was noticed.
	var took time.Duration
	tries := int64(0)
	for again := true; again && tries < 3; tries++ {
		run := query[int64](t, db, insertRunning, task.ID, 1<<30)
		stood := standstill(t, db)
		id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) values ($1, 'ann', 2, 2) returning id`, task.ID)
		r := n.endedRequest(t, id)
		took = r.CompletedAt.Sub(r.CreatedAt) - stood()
		again = took > 2*time.Second
		if state := query[string](t, db, `select state from getwork.run where id = $1`, run); r.Assigned != 2 || state != "lost" {
			t.Errorf("ann is %s with %d, and the run %s", r.State, r.Assigned, state)
		}
	}
	if took > 2*time.Second {
		t.Errorf("the last of %d took %v", tries, took)
	}
	await(t, "it is counted", func() bool { return n.Rescued.Load() > 0 && n.RunEnds[RunLost].Load() == tries })
}

// While a run is alive no node tries its lock, however often it checks. When the lock's holder is gone they do.
func TestLiveRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	var tries atomic.Int64
	n := startNode(t, url, nodeOptions{Look: 100 * time.Millisecond, Steps: func(_ context.Context, s Step) {
		if s == StepBusy || s == StepLocked {
			tries.Add(1)
		}
	}})
	task := newTask(t, n, "task", numbers, nil)
	lock, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	var backend int32
	if err := lock.QueryRow(t.Context(), runLock, task.ID).Scan(&backend); err != nil {
		t.Fatal(err)
	}
	run := query[int64](t, db, insertRunning, task.ID, backend)
	id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested, created_at)
values ($1, 'ann', 2, 2, clock_timestamp() - interval '1 minute') returning id`, task.ID)
	before := n.Looks.Load()
	await(t, "the node has looked often", func() bool { return n.Looks.Load() > before+20 })
	if got := tries.Load(); got != 0 {
		t.Errorf("the lock was tried %d times", got)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, id); r.Assigned != 2 {
		t.Errorf("ann is %s", r.State)
	}
	if state := query[string](t, db, `select state from getwork.run where id = $1`, run); state != "lost" {
		t.Errorf("the run is %s", state)
	}
}

// An idle node checks about every two seconds, and more often while a query runs anywhere.
func TestPace(t *testing.T) {
	t.Parallel()
	e := newRescuer(New(Config{}))
	for range 1000 {
		for p, within := range map[pace][2]time.Duration{
			atEase:  {1200 * time.Millisecond, 2800 * time.Millisecond},
			closely: {200 * time.Millisecond, 600 * time.Millisecond},
			atOnce:  {50 * time.Millisecond, 150 * time.Millisecond},
		} {
			if got := e.rescuePause(p); got < within[0] || got > within[1] {
				t.Fatalf("pace %d: %v", p, got)
			}
		}
	}
}

// Every node knows how long requests have waited, even if none of them came to it, until they are served. Requests that wait
// on purpose do not count.
func TestOldestRequest(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{Look: 50 * time.Millisecond})
	const insert = `
insert into getwork.work_requested (task_id, user_name, wanted, requested, created_at, linger_until, look_after)
values ($1, $2, 1, 1, clock_timestamp() - $3::interval, clock_timestamp() + $4::interval, clock_timestamp() + $4::interval) returning id`
	hourly := func(s *assign.Settings) { s.RerunAfter = assign.Duration(time.Hour) } // for lingering requests
	task, paused := newTask(t, n, "task", numbers, hourly), newTask(t, n, "paused", numbers, nil)
	execute(t, db, `update getwork.task_state set paused = true where task_id = $1`, paused.ID)
	query[int64](t, db, insert, paused.ID, "ann", "1 hour", nil)
	query[int64](t, db, insert, task.ID, "bob", "2 hours", "50 minutes")
	n.looked(t)
	if age := n.Oldest.Load(); age != 0 {
		t.Errorf("a request that waits on purpose counts: %v", age)
	}

	other := newTask(t, n, "other", numbers, nil)
	run := runElsewhere(t, db, task.ID, other.ID)
	first := query[int64](t, db, insert, task.ID, "eve", "90 seconds", nil)
	query[int64](t, db, insert, task.ID, "dan", "80 seconds", nil)
	query[int64](t, db, insert, other.ID, "fay", "10 seconds", nil)
	await(t, "it is known", func() bool { return n.Oldest.Load() > 0 })
	if age := n.Oldest.Load(); age < 90*time.Second || age > 30*time.Minute {
		t.Errorf("the oldest request is %v old, want 90 s and a little", age)
	}
	before := n.Oldest.Load()
	await(t, "it grows", func() bool { return n.Oldest.Load() > before })
	if err := run.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.endedRequest(t, first)
	await(t, "nobody waits", func() bool { return n.Oldest.Load() == 0 })
}

// looked waits until the node has looked twice.
func (n *node) looked(t *testing.T) {
	t.Helper()
	before := n.Looks.Load()
	await(t, "the node has looked twice", func() bool { return n.Looks.Load() > before+2 })
}

// runElsewhere lets another session run the tasks' queries until the transaction that it returns ends.
func runElsewhere(t *testing.T, db *pgxpool.Pool, tasks ...int64) pgx.Tx {
	t.Helper()
	run, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Rollback(context.Background()) })
	for _, id := range tasks {
		var backend int32
		if err := run.QueryRow(t.Context(), runLock, id).Scan(&backend); err != nil {
			t.Fatal(err)
		}
		query[int64](t, db, insertRunning, id, backend)
	}
	return run
}

// A change of the task has the next round read the lingering requests. Until then it is not as if they had waited in vain all along.
func TestOldestRequestAfterAChange(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{Look: 50 * time.Millisecond})
	task := newTask(t, n, "task", `select 1 as item where false`, func(s *assign.Settings) { s.RerunAfter = assign.Duration(time.Hour) })
	r := n.linger(t, "task", "ann", 1)
	await(t, "a round has found nothing", func() bool {
		return query[bool](t, db, `select look_after is not null from getwork.work_requested where id = $1`, r.ID)
	})
	execute(t, db, `update getwork.work_requested set created_at = created_at - interval '3 hours' where id = $1`, r.ID)
	runElsewhere(t, db, task.ID)
	_, err := n.UpdateTask(t.Context(), "task", 1, "mia", func(s *assign.Settings) error {
		s.Query = `select 2 as item where false`
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !query[bool](t, db, `select look_after is null from getwork.work_requested where id = $1`, r.ID) {
		t.Fatal("the next round would not look at the request")
	}
	n.looked(t)
	if age := n.Oldest.Load(); age != 0 {
		t.Errorf("somebody has waited for %v", age)
	}
	figures, err := n.Records.TaskFigures(t.Context())
	if err != nil || len(figures) != 1 || figures[0].Waiting != 1 || figures[0].Oldest != 0 {
		t.Errorf("the task's figures: %+v, %v", figures, err)
	}
}

// While no node can read it, the age is as it was last seen, and grows.
func TestOldestRequestWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	e := newRescuer(New(Config{}))
	since := time.Now().Add(-time.Minute)
	e.Oldest.since.Store(&since)
	e.oldest = time.Now() // it was read just now, and is not read again
	e.readOldest(t.Context(), true)
	if age := e.Oldest.Load(); age < time.Minute {
		t.Errorf("it is %v, want a minute and more", age)
	}
	e.readOldest(t.Context(), false)
	if age := e.Oldest.Load(); age != 0 {
		t.Errorf("it is %v though nobody waits", age)
	}
}
