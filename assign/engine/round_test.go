package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// The first story: Oliver clicks, and while his query runs Tracy does, on another node. One query runs; Oliver gets the best
// loans, Tracy the next best, and no loan goes to both.
func TestOliverAndTracy(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	monday := startNode(t, url, nodeOptions{steps: queried.hold})
	tuesday := startNode(t, url, nodeOptions{steps: queried.hold}) // whichever node runs the query is held
	db := pool(t, url)
	newTask(t, monday, "verify", `select 'loan ' || i as item, i * 1000 as amount from generate_series(1, 9) i order by i`, nil)

	oliver := monday.click(t, "verify", "oliver", 2)
	<-queried.reached
	tracy := tuesday.click(t, "verify", "tracy", 3)
	if oliver.State != assign.Pending || tracy.State != assign.Pending {
		t.Fatalf("oliver is %s and tracy %s while the query runs", oliver.State, tracy.State)
	}
	close(queried.open)
	oliver, tracy = monday.endedRequest(t, oliver.ID), tuesday.endedRequest(t, tracy.ID)
	if diff := cmp.Diff([]string{"loan 1", "loan 2"}, items(oliver)); diff != "" {
		t.Errorf("oliver: %s", diff)
	}
	if diff := cmp.Diff([]string{"loan 3", "loan 4", "loan 5"}, items(tracy)); diff != "" {
		t.Errorf("tracy: %s", diff)
	}
	if got := compact(oliver.Work[1]); got != `{"amount":2000}` {
		t.Errorf("details %s", got)
	}
	if runs := query[int](t, db, `select count(*) from getwork.run`); runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
	if a, b := oliver.Requested, oliver.Assigned; a != 2 || b != 2 || oliver.State != assign.Assigned {
		t.Errorf("oliver's story is (%d, %d) %s, want (2, 2) assigned", a, b, oliver.State)
	}
}

// Items go to the requests in order; the last one gets a part, and then there is nothing, with a reason.
func TestPartialAndNone(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "three", `select i as item from generate_series(1, 3) i order by i`, nil)
	newTask(t, n, "nothing", `select 1 as item where false`, nil)

	first := n.endedRequest(t, n.click(t, "three", "ann", 2).ID)
	second := n.endedRequest(t, n.click(t, "three", "bob", 2).ID)
	third := n.endedRequest(t, n.click(t, "three", "cyd", 2).ID)
	fourth := n.endedRequest(t, n.click(t, "nothing", "cyd", 2).ID)
	type story struct {
		State               assign.State
		Requested, Assigned int
		Reason              assign.Reason
	}
	tell := func(r assign.Request) story {
		s := story{r.State, r.Requested, r.Assigned, ""}
		if r.Reason != nil {
			s.Reason = *r.Reason
		}
		return s
	}
	want := []story{{assign.Assigned, 2, 2, ""}, {assign.Partial, 1, 1, ""}, {assign.None, 0, 0, assign.AllHeld}, {assign.None, 0, 0, assign.NoMatch}}
	if diff := cmp.Diff(want, []story{tell(first), tell(second), tell(third), tell(fourth)}); diff != "" {
		t.Error(diff)
	}
}

// A holder has one pending request for a task, from whatever tab and node they ask.
func TestOnePendingRequest(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	locked := newGate(StepLocked)
	a := startNode(t, url, nodeOptions{steps: locked.hold})
	b := startNode(t, url, nodeOptions{steps: locked.hold})
	newTask(t, a, "task", `select i as item from generate_series(1, 100) i order by i`, nil)
	first := a.click(t, "task", "ann", 2)
	<-locked.reached
	var mu sync.Mutex
	var again sync.WaitGroup
	for i := range 20 {
		n := a
		if i%2 == 0 {
			n = b
		}
		again.Go(func() {
			r, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 5})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if r.ID != first.ID || r.Wanted != 2 {
				t.Errorf("asking again gave request %d for %d, want %d for 2", r.ID, r.Wanted, first.ID)
			}
		})
	}
	again.Wait()
	close(locked.open)
	if r := a.endedRequest(t, first.ID); r.Assigned != 2 {
		t.Errorf("ann got %d", r.Assigned)
	}
}

// Clicks are recorded and answered at once while the run lock is held: the insert refers to the task's row, which "for
// update" would lock against it.
func TestClicksDoNotWaitForTheQuery(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	locked := newGate(StepLocked)
	n := startNode(t, url, nodeOptions{steps: locked.hold})
	newTask(t, n, "task", `select i as item from generate_series(1, 100) i order by i`, nil)
	n.click(t, "task", "first", 1)
	<-locked.reached
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // the lock is held for longer
	defer cancel()
	for i := range 10 {
		if _, err := n.GetWork(ctx, "task", assign.Click{Holder: assign.Holder{User: fmt.Sprint("user ", i)}, Count: 1}); err != nil {
			t.Fatalf("a click while the lock is held: %v", err)
		}
	}
	close(locked.open)
}

// Requests are served in the order of their ids, best items first.
func TestFirstComeFirstServedBestFirst(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	n := startNode(t, url, nodeOptions{steps: queried.hold})
	newTask(t, n, "task", `select i as item from generate_series(1, 1000) i order by i desc`, nil)
	var ids []int64
	for i := range 30 {
		ids = append(ids, n.click(t, "task", fmt.Sprint("user ", i), 1+i%5).ID)
	}
	close(queried.open)
	next := 1000
	for i, id := range ids {
		r := n.endedRequest(t, id)
		if r.Assigned != 1+i%5 {
			t.Fatalf("user %d got %d", i, r.Assigned)
		}
		for _, it := range items(r) {
			if it != fmt.Sprint(next) {
				t.Fatalf("user %d got item %s, want %d", i, it, next)
			}
			next--
		}
	}
}

// begun is a transaction that notes its limits when a round begins in it.
type begun struct {
	pgx.Tx
	limits string
}

const limitsNow = `select concat_ws(' ', current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),
	current_setting('enable_seqscan'), current_setting('enable_bitmapscan'), current_setting('jit'))`

func (b *begun) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if err := b.QueryRow(ctx, limitsNow).Scan(&b.limits); err != nil {
		b.limits = err.Error()
	}
	return b.Tx.SendBatch(ctx, batch)
}

// A round in the run lock's transaction waits for the assign lock as long as any other, and a node that freezes in it loses that
// lock as soon. Otherwise a lock that was busy for a while cost the query's result, and clicks on a fresh shelf were refused.
func TestRoundsUnderTheRunLockHaveTheLimitsOfOthers(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	task := newTask(t, n, "task", numbers, fresh(time.Hour))
	var want string
	err := pgx.BeginTxFunc(t.Context(), db, pg.ReadCommitted, func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), limitsNow).Scan(&want) })
	if err != nil {
		t.Fatal(err)
	}
	view, err := n.readTaskView(t.Context(), n.api, task.ID)
	if err != nil {
		t.Fatal(err)
	}
	for name, round := range map[string]func(tx pgx.Tx) error{
		"a run's": func(tx pgx.Tx) error {
			return runner{n.Engine}.handOut(t.Context(), tx, view, &runResult{run: 1})
		},
		"a failed run's":    func(tx pgx.Tx) error { return runner{n.Engine}.failRequests(t.Context(), tx, view, 1, "no") },
		"on the shelf":      func(tx pgx.Tx) error { return locker{n.Engine}.serveShelf(t.Context(), tx, task.ID) },
		"of a deleted task": func(tx pgx.Tx) error { return locker{n.Engine}.endDeleted(t.Context(), tx, task.ID) },
	} {
		conn, err := n.runs.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{BeginQuery: beginLocking})
		if err != nil {
			t.Fatal(err)
		}
		b := &begun{Tx: tx}
		err = round(b) // some have nothing to do, and fail for it
		_ = tx.Rollback(t.Context())
		conn.Release()
		if b.limits != want {
			t.Errorf("%s round has the limits %q, want %q (%v)", name, b.limits, want, err)
		}
	}
}
