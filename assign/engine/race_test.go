package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/schema/schematest"
)

// The lost wake-up, held in step: a click is recorded after the round has read the waiting requests and before its lock is
// free. The click's own node finds the lock taken. The round's node must look again, or nobody serves the click. The rescuer,
// which would serve it a little later, is off.
func TestLooksAgainAfterTheLock(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	read, busy := newGate(StepRead), newGate(StepBusy)
	close(busy.open)
	a := startNode(t, url, nodeOptions{Steps: read.hold})
	newTask(t, a, "task", `select i as item from generate_series(1, 100) i order by i`, nil)
	oliver := a.click(t, "task", "oliver", 1)
	<-read.reached

	b := startNode(t, url, nodeOptions{Steps: busy.hold, Deaf: true})
	tracy := b.click(t, "task", "tracy", 1)
	<-busy.reached // her node has found the lock taken, and will not look again
	close(read.open)
	if r := a.endedRequest(t, oliver.ID); r.Assigned != 1 {
		t.Errorf("oliver got %d", r.Assigned)
	}
	if r := b.endedRequest(t, tracy.ID); r.Assigned != 1 {
		t.Errorf("tracy got %d", r.Assigned)
	}
}

// This is what happens without it: one pass under the lock alone, without looking again and without handing the run's slot on,
// leaves Tracy waiting and servable, with no node on the way to her.
func TestWithoutLookingAgainTheLastClickIsLost(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	read, busy := newGate(StepRead), newGate(StepBusy)
	close(busy.open)
	a := startNode(t, url, nodeOptions{Steps: read.hold, Deaf: true})
	task := newTask(t, a, "task", `select i as item from generate_series(1, 100) i order by i`, nil)
	a.idle(t) // the new task has woken it; it would serve Oliver itself, and look again
	oliver := &click{Click: assign.Click{Holder: assign.Holder{User: "oliver"}, Count: 1}, holder: assign.Holder{User: "oliver"}}
	err := pgx.BeginTxFunc(t.Context(), a.pools.API, pg.ReadCommitted, func(tx pgx.Tx) error {
		_, err := a.recordAndServe(t.Context(), tx, clicksTask{id: task.ID}, []*click{oliver}, ranking.Matching{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	attempted := make(chan error, 1)
	go func() {
		_, err := a.tryLock(t.Context(), task.ID)
		attempted <- err
	}()
	<-read.reached
	b := startNode(t, url, nodeOptions{Steps: busy.hold, Deaf: true})
	tracy := b.click(t, "task", "tracy", 1)
	<-busy.reached
	b.idle(t)
	close(read.open)
	if err := <-attempted; err != nil {
		t.Fatal(err)
	}
	if p, err := a.readTaskView(t.Context(), a.pools.API, task.ID); err != nil || !p.view.Waits || plan.Next(p.view) != plan.Run {
		t.Errorf("after the round, somebody servable waits: %v (%v), want true", p.view.Waits, err)
	}
	if r, err := b.Request(t.Context(), tracy.ID, tracy.Holder(), false); err != nil || r.State != assign.Pending {
		t.Errorf("tracy is %s (%v); want her lost", r.State, err)
	}
	a.Wake(task.ID) // looking again serves her
	if r := b.endedRequest(t, tracy.ID); r.State != assign.Assigned {
		t.Errorf("tracy is %s", r.State)
	}
}

// A request that was cancelled before the round's read is not served; a later cancel waits for the round, and reads that it
// came too late. Exactly one of the two ends the request.
func TestCancelBesideTheRound(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried, read := newGate(StepQueried), newGate(StepRead)
	steps := func(ctx context.Context, s Step) {
		queried.hold(ctx, s)
		read.hold(ctx, s)
	}
	n := startNode(t, url, nodeOptions{Steps: steps})
	db := pool(t, url)
	newTask(t, n, "task", `select i as item from generate_series(1, 100) i order by i`, nil)
	early, late, stays := n.click(t, "task", "early", 1), n.click(t, "task", "late", 1), n.click(t, "task", "stays", 1)
	<-queried.reached
	if r, err := n.Cancel(t.Context(), early.ID, assign.Holder{User: "early"}, false); err != nil || r.State != assign.Cancelled {
		t.Fatalf("cancel before the round: %s, %v", r.State, err)
	}
	close(queried.open)
	<-read.reached
	tooLate := make(chan error, 1)
	go func() {
		_, err := n.Cancel(t.Context(), late.ID, assign.Holder{User: "late"}, false)
		tooLate <- err
	}()
	await(t, "the cancel waits for the round's row", func() bool {
		return schematest.LockWaits(t, db) == 1
	})
	close(read.open)
	wantKind(t, <-tooLate, assign.NotPending)
	if r := n.endedRequest(t, early.ID); r.State != assign.Cancelled || len(r.Work) != 0 {
		t.Errorf("the cancelled one is %s and has %d items", r.State, len(r.Work))
	}
	if r := n.endedRequest(t, late.ID); r.State != assign.Assigned {
		t.Errorf("the late one is %s", r.State)
	}
	if r := n.endedRequest(t, stays.ID); r.State != assign.Assigned {
		t.Errorf("the other one is %s", r.State)
	}
	if _, err := n.Cancel(t.Context(), early.ID, assign.Holder{User: "early"}, false); err != nil {
		t.Errorf("cancelling again: %v", err)
	}
}

// If a request is ended behind the round's back by a session that takes no lock, the round's write notices, and the round
// plans again without it: what was answered as cancelled stays cancelled.
func TestRoundRepeatsWhatItReliesOn(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", `select 1 as item`, func(s *assign.Settings) { s.Paused = true })
	for _, user := range []string{"ann", "bob"} {
		if _, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: user}, Count: 1, Linger: assign.Duration(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	run := query[int64](t, db, `insert into getwork.run (task_id, version, node) values ($1, 1, 'test') returning id`, task.ID)
	tx, err := n.pools.API.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	r, err := n.openRound(t.Context(), tx, task.ID)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := "1:1:"
	o := &runResult{Result: ranking.Result{Items: []ranking.Candidate{{Rank: 1, Item: "a", Slots: 1, Details: "{}"}, {Rank: 2, Item: "b", Slots: 1, Details: "{}"}}, Given: 2, Snapshot: &snapshot}, run: run}
	behind := behindTheBack{o, func() {
		if _, err := tx.Exec(t.Context(), `update getwork.work_requested set state = 'cancelled', requested = 0, completed_at = clock_timestamp() where user_name = 'ann'`); err != nil {
			t.Error(err)
		}
	}}
	if err := r.serve(t.Context(), &behind); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query[string](t, db, `select string_agg(user_name || ' ' || item, ', ') from getwork.work`); got != "bob a" {
		t.Errorf("handed out: %s; want bob a", got)
	}
}

// behindTheBack makes something happen once, between a round's read and its write.
type behindTheBack struct {
	*runResult
	happen func()
}

func (b *behindTheBack) take(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	if b.happen != nil {
		// Before the savepoint of the write that fails, like another session's commit.
		b.happen()
		b.happen = nil
	}
	return b.runResult.take(ctx, r, n)
}

// A constraint, not the code, has the last word: an item that another holder got behind the round's back is refused by the
// index, and the round plans again with what is left, without another run of the query.
func TestConstraintHasTheLastWord(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	read := newGate(StepRead)
	n := startNode(t, url, nodeOptions{Steps: read.hold})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 3) i order by i`, nil)
	r := n.click(t, "task", "ann", 2)
	<-read.reached
	// A session that holds none of our locks takes item 1.
	execute(t, db, `insert into getwork.work (task_id, item, user_name) values ($1, '1', 'a stranger')`, task.ID)
	close(read.open)
	r = n.endedRequest(t, r.ID)
	if got := fmt.Sprint(items(r)); got != "[2 3]" {
		t.Errorf("ann got %s, want [2 3]", got)
	}
	if runs := query[int](t, db, `select count(*) from getwork.run`); runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}

// Batches on two nodes that record the same holders come in opposite order. Inserted in one order, they wait for each other
// in one direction, and there is no deadlock.
func TestBatchesInOppositeOrder(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	task := newTask(t, n, "task", `select i as item from generate_series(1, 100) i order by i`, func(s *assign.Settings) { s.Paused = true })
	linger := func(user string) *click {
		c := assign.Click{Holder: assign.Holder{User: user}, Count: 1, Linger: assign.Duration(time.Hour)}
		return &click{Click: c, holder: c.Holder, done: make(chan struct{})}
	}
	for round := range 30 {
		var up, down []*click
		for i := range 50 {
			up = append(up, linger(fmt.Sprintf("user %02d of %d", i, round)))
			down = append(down, linger(fmt.Sprintf("user %02d of %d", 49-i, round)))
		}
		var both sync.WaitGroup
		for _, batch := range [][]*click{up, down} {
			both.Go(func() {
				err := pgx.BeginTxFunc(t.Context(), n.pools.API, pg.ReadCommitted, func(tx pgx.Tx) error {
					_, err := n.recordAndServe(t.Context(), tx, clicksTask{id: task.ID}, batch, ranking.Matching{})
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		for i := range up {
			if up[i].id == 0 || up[i].id != down[len(down)-1-i].id {
				t.Fatalf("%s has requests %d and %d", up[i].holder.User, up[i].id, down[len(down)-1-i].id)
			}
		}
	}
}

// An empty round looks again, too: a click between its read, which finds no request, and the release of the lock has found
// the lock taken.
func TestLooksAgainAfterAnEmptyRound(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	locked, nothing, busy := newGate(StepLocked), newGate(StepNothing), newGate(StepBusy)
	close(busy.open)
	a := startNode(t, url, nodeOptions{Deaf: true, Steps: func(ctx context.Context, s Step) {
		locked.hold(ctx, s)
		nothing.hold(ctx, s)
	}})
	b := startNode(t, url, nodeOptions{Deaf: true, Steps: busy.hold})
	newTask(t, a, "task", numbers, nil)
	ann := a.click(t, "task", "ann", 1)
	<-locked.reached
	if _, err := b.Cancel(t.Context(), ann.ID, ann.Holder(), false); err != nil {
		t.Fatal(err)
	}
	close(locked.open)
	<-nothing.reached
	ben := b.click(t, "task", "ben", 1)
	<-busy.reached
	close(nothing.open)
	if r := b.endedRequest(t, ben.ID); r.State != assign.Assigned {
		t.Errorf("ben is %s", r.State)
	}
}
