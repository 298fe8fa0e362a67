package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"getwork/schema/schematest"
)

const insertRunning = `insert into getwork.run (task_id, version, node, backend) values ($1, 1, 'dead', $2) returning id`

// A run whose backend is gone is dead, and other nodes take over at once, not only when its requests have waited for two
// seconds.
func TestDeadRunIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{look: 300 * time.Millisecond})
	db := pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	run := query[int64](t, db, insertRunning, task.ID, 1<<30)
	stood := standstill(t, db)
	id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) values ($1, 'ann', 2, 2) returning id`, task.ID)
	r := n.endedRequest(t, id)
	if took, stood := r.CompletedAt.Sub(r.CreatedAt), stood(); r.Assigned != 2 || took > 2*time.Second+stood {
		t.Errorf("ann is %s with %d after %v, of which the machine stood still for %v", r.State, r.Assigned, took, stood)
	}
	if state := query[string](t, db, `select state from getwork.run where id = $1`, run); state != "lost" {
		t.Errorf("the run is %s", state)
	}
	await(t, "it is counted", func() bool { return n.Rescued.Load() == 1 && n.RunEnds[RunLost].Load() == 1 })
}

// While a run is alive no node tries its lock, however often it looks. When the lock's holder is gone they do.
func TestLiveRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	var tries atomic.Int64
	n := startNode(t, url, nodeOptions{look: 100 * time.Millisecond, steps: func(_ context.Context, s Step) {
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

// An idle node looks about every two seconds, and more often while a query runs anywhere.
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
