package engine

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// These tests hold two sessions in step where two defences keep one promise. Here both defences are in place. TestHolesInStep
// of the fault harness runs these tests without one of them, which must change nothing, and without both, which must break
// the promise.

// keeps fails the test if a promise was not kept.
func keeps(t *testing.T, kept bool, promise string) {
	t.Helper()
	if !kept {
		t.Errorf("broken promise: %s", promise)
	}
}

// awaitLock waits until a session waits for a row lock, and reports true; false: instead came true first.
func awaitLock(t *testing.T, db *pgxpool.Pool, so func() bool) (waits bool) {
	t.Helper()
	await(t, "somebody waits for a lock, or goes on without", func() bool {
		waits = schematest.LockWaits(t, db) > 0
		return waits || so()
	})
	return waits
}

// passed reports whether a gate has been reached.
func (g *gate) passed() bool {
	select {
	case <-g.reached:
		return true
	default:
		return false
	}
}

// A click that is recorded after the round has read the waiting requests, and finds the lock taken, is served by looking
// again after the round, or by the rescuer.
func TestLastClickIsServed(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	read, busy := newGate(StepRead), newGate(StepBusy)
	close(busy.open)
	a := startNode(t, url, nodeOptions{Steps: read.hold, Look: 300 * time.Millisecond})
	newTask(t, a, "task", numbers, nil)
	oliver := a.click(t, "task", "oliver", 1)
	<-read.reached
	b := startNode(t, url, nodeOptions{Steps: busy.hold, Look: 300 * time.Millisecond})
	tracy := b.click(t, "task", "tracy", 1)
	<-busy.reached
	b.idle(t)
	close(read.open)
	if r := a.endedRequest(t, oliver.ID); r.Assigned != 1 {
		t.Errorf("oliver got %d", r.Assigned)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(20*time.Second))
	defer cancel()
	r, err := b.Feed.Await(ctx, tracy.ID, tracy.Holder(), false, func(r *assign.Request) bool { return r.State != assign.Pending })
	if err != nil {
		t.Fatal(err)
	}
	keeps(t, r.State == assign.Assigned, "the last click is served")
}

// Two rounds of one inbox on two nodes: the second waits for the first, or violates the index and plans again.
func TestItemIsGivenOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	first, second := newGate(StepRead), newGate(StepRead)
	a, b := startNode(t, url, nodeOptions{Steps: first.hold}), startNode(t, url, nodeOptions{Steps: second.hold})
	newInbox(t, a, "inbox", nil)
	a.push(t, "inbox", "x")
	got := make(chan assign.Request, 2)
	click := func(n *node, user string) {
		r, err := n.GetWork(context.Background(), "inbox", assign.Click{Holder: assign.Holder{User: user}, Count: 1})
		if err != nil {
			t.Error(err)
		}
		got <- r
	}
	go click(a, "ann")
	<-first.reached
	go click(b, "ben")
	awaitLock(t, db, second.passed)
	close(first.open)
	close(second.open)
	given := len((<-got).Work) + len((<-got).Work)
	keeps(t, given == 1, "an item with one place is given once")
}

// A cancel between a round's read and its write waits for the round and is too late, or removes the request from the round's
// list.
func TestCancelIsKept(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	read := newGate(StepRead)
	n := startNode(t, url, nodeOptions{Steps: read.hold})
	newTask(t, n, "task", numbers, nil)
	ann := n.click(t, "task", "ann", 1)
	<-read.reached
	answered := make(chan error, 1)
	go func() {
		_, err := n.Cancel(context.Background(), ann.ID, ann.Holder(), false)
		answered <- err
	}()
	awaitLock(t, db, func() bool { return len(answered) == 1 })
	close(read.open)
	err := <-answered
	n.idle(t)
	r := n.endedRequest(t, ann.ID)
	kept := r.State == assign.Cancelled && len(r.Work) == 0
	if err != nil {
		wantKind(t, err, assign.NotPending)
		kept = r.State == assign.Assigned
	}
	keeps(t, kept, "what was cancelled stays so")
}

// On a server whose default isolation level fixes what a transaction sees, a claim sees what happened to its item before it
// got its lock: it reads nothing before the lock, and each statement sees everything committed.
func TestClaimSeesAllBeforeItsLock(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	t.Run("the lock is free", func(t *testing.T) {
		n, db, task := repeatableRead(t)
		given := make(chan error, 1)
		claim := func(item string) {
			_, _, err := n.Claim(context.Background(), "task", item, who("ann"))
			given <- err
		}
		var err error
		answered := func() bool {
			select {
			case err = <-given:
				return true
			default:
				return false
			}
		}
		asleep := func() bool {
			return query[bool](t, db, `select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')`)
		}
		never := func() {
			execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid) values ($1, '1', 'bob', 'never', clock_timestamp(), pg_current_xact_id())`, task)
		}
		// Without lock-first a claim sleeps after its first read, before it has the lock.
		sleeps := false
		go claim("2")
		await(t, "a claim sleeps, or is answered", func() bool {
			sleeps = sleeps || asleep()
			return answered()
		})
		if err != nil {
			t.Fatal(err)
		}
		if sleeps {
			go claim("1")
			await(t, "the claim has read something", asleep)
			never()
		} else {
			never()
			go claim("1")
		}
		keeps(t, <-given != nil, "never again, with a free lock")
	})
	// A lock that has to wait is given to a transaction that sees the state at the beginning of the wait. So lock-first alone
	// is no second defence here; the isolation level is.
	t.Run("the lock is taken", func(t *testing.T) {
		n, db, task := repeatableRead(t)
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		if _, err := tx.Exec(t.Context(), `select from getwork.task_state where task_id = $1 for no key update`, task); err != nil {
			t.Fatal(err)
		}
		given := make(chan error, 1)
		go func() {
			_, _, err := n.Claim(context.Background(), "task", "1", who("ann"))
			given <- err
		}()
		awaitLock(t, db, func() bool { return len(given) == 1 })
		if _, err := tx.Exec(t.Context(), `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid) values ($1, '1', 'bob', 'never', clock_timestamp(), pg_current_xact_id())`, task); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		keeps(t, <-given != nil, "never again, with a lock that is taken")
	})
}

// repeatableRead starts a node, and makes a task, on a database whose default is that level.
func repeatableRead(t *testing.T) (*node, *pgxpool.Pool, int64) {
	t.Helper()
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `do $$ begin execute format('alter database %I set default_transaction_isolation = ''repeatable read''', current_database()); end $$`)
	n := startNode(t, url, nodeOptions{})
	db.Reset()
	return n, db, newTask(t, n, "task", numbers, nil).ID
}

// Holders who are too late read so even before the sweep.
func TestTooLateIsRefused(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	newInbox(t, n, "inbox", leased(time.Hour))
	n.push(t, "inbox", "x", "y")
	done, extended := n.take(t, "inbox", "ann"), n.take(t, "inbox", "ann")
	n.stop() // it would sweep
	still := still(t, url)
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() where state = 'held'`)
	_, err := still.Dispose(t.Context(), done.ID, assign.Disposition{Outcome: "complete"}, done.Holder(), false)
	keeps(t, assign.IsRefusal(err, assign.LeaseLost), "too late to complete")
	_, err = still.Extend(t.Context(), extended.ID, extended.Holder())
	keeps(t, assign.IsRefusal(err, assign.LeaseLost), "too late to extend")
}
