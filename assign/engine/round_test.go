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
	"getwork/notify"
	"getwork/schema/schematest"
)

// The first story: Oliver clicks, and while his query runs Tracy does, on another node. One query runs; Oliver gets the best
// loans, Tracy the next best, and no loan goes to both.
func TestOliverAndTracy(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	monday := startNode(t, url, nodeOptions{Steps: queried.hold})
	tuesday := startNode(t, url, nodeOptions{Steps: queried.hold}) // whichever node runs the query is held
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

// A holder has one pending request for a task, from whatever tab and node they ask.
func TestOnePendingRequest(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	locked := newGate(StepLocked)
	a := startNode(t, url, nodeOptions{Steps: locked.hold})
	b := startNode(t, url, nodeOptions{Steps: locked.hold})
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
	n := startNode(t, url, nodeOptions{Steps: locked.hold})
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
	view, err := n.readTaskView(t.Context(), n.DB, task.ID)
	if err != nil {
		t.Fatal(err)
	}
	for name, round := range map[string]func(tx pgx.Tx) error{
		"a run's": func(tx pgx.Tx) error {
			return n.handOut(t.Context(), tx, view, &runResult{run: 1})
		},
		"a failed run's":    func(tx pgx.Tx) error { return n.failRequests(t.Context(), tx, view, 1, "no") },
		"on the shelf":      func(tx pgx.Tx) error { return n.serveShelf(t.Context(), tx, task.ID) },
		"of a deleted task": func(tx pgx.Tx) error { return n.endDeleted(t.Context(), tx, task.ID) },
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

// However many tasks a node's clicks are on, its quick rounds are announced together, and so are those of many nodes.
func TestQuickRoundsOfManyTasksAreToldTogether(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	const tasks = 30
	for i := range tasks {
		name := fmt.Sprint("inbox-", i)
		newInbox(t, n, name, nil)
		n.push(t, name, "a", "b")
	}
	n.idle(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "listen "+n.Channel); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range tasks {
		n.click(t, fmt.Sprint("inbox-", i), "ann", 1)
	}
	told, messages := map[int64]bool{}, 0
	for len(told) < tasks {
		notice, err := conn.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m, err := notify.Decode(notice.Payload)
		if err != nil {
			t.Fatal(err)
		}
		before := len(told)
		if m.Round != nil {
			told[m.Round.ID] = true
		}
		for _, c := range m.Changes {
			for _, id := range c.Rounds {
				told[id] = true
			}
		}
		if len(told) > before {
			messages++
		}
	}
	took := time.Since(began)
	if most := 4 + int(took/tellEvery) + int(took/n.Announce.Every); messages > most {
		t.Errorf("%d rounds within %s were announced by %d messages, want at most %d", tasks, took, messages, most)
	}
	n.Heard(notify.Message{Node: "another"})
	if n.announcesAtOnce() {
		t.Error("a round announces itself right after another node's announcement")
	}
	n.lastNotify.Store(time.Now().Add(-tellEvery).UnixNano())
	n.Heard(notify.Message{Node: n.Node})
	if !n.announcesAtOnce() || n.announcesAtOnce() {
		t.Error("a quiet node's round does not announce itself once")
	}
}

// A change that comes alone is announced by its own transaction, whatever becomes of the node then.
func TestChangesTellOfThemselves(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a, b := startNode(t, url, nodeOptions{Dumb: true, Every: time.Nanosecond}), startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, a, "inbox", func(s *assign.Settings) { s.Lease = lasting(time.Hour) })
	newInbox(t, a, "empty", nil)
	a.push(t, "inbox", "one", "two", "three", "four")
	ann, bob := b.eventsOf(t, "ann"), b.eventsOf(t, "bob")
	holder := assign.Holder{User: "ann"}
	dispose := func(id int64, outcome string) {
		t.Helper()
		if _, err := a.Dispose(t.Context(), id, assign.Disposition{Outcome: outcome}, holder, false); err != nil {
			t.Fatal(err)
		}
	}
	swept := func(statement, set string, id int64) {
		t.Helper()
		execute(t, db, `update getwork.work set `+set+` where id = $1`, id)
		// A node's own sweep may have been earlier; it announces in the same way.
		if found, err := a.sweepOnce(t.Context(), statement); err != nil || len(found) > 1 {
			t.Fatalf("swept %v, %v", found, err)
		}
	}

	r := a.click(t, "inbox", "ann", 1)
	one := r.Work[0]
	heard(t, ann, "a quick round gave her work", requestIs(r.ID, assign.Assigned))
	if _, err := a.Extend(t.Context(), one.ID, holder); err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was extended", workIs(one.ID, "held"))
	dispose(one.ID, "complete")
	heard(t, ann, "it was completed", workIs(one.ID, "completed"))

	two, _, err := a.Claim(t.Context(), "inbox", "two", assign.Who{Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was claimed", workIs(two.ID, "held"))
	given, err := a.Reassign(t.Context(), two.ID, assign.Reassignment{User: "bob", Force: true}, "boss")
	if err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was taken away", workIs(two.ID, "reassigned"))
	heard(t, bob, "it was given to the new holder", workIs(given.ID, "held"))
	dry, err := a.Release(t.Context(), assign.Release{User: "bob", DryRun: true}, "boss")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Release(t.Context(), assign.Release{User: "bob", Token: dry.Token}, "boss"); err != nil {
		t.Fatal(err)
	}
	heard(t, bob, "it was released", workIs(given.ID, "returned"))

	three, _, err := a.Claim(t.Context(), "inbox", "three", assign.Who{Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was claimed", workIs(three.ID, "held"))
	swept(warnHolders, `warn_at = clock_timestamp()`, three.ID)
	heard(t, ann, "its lease is about to run out", workIs(three.ID, "held"))
	swept(expireWork, `lease_expires_at = clock_timestamp()`, three.ID)
	heard(t, ann, "it expired", workIs(three.ID, "expired"))

	waits := a.linger(t, "empty", "ann", 1)
	heard(t, ann, "she waits", requestIs(waits.ID, assign.Pending))
	if _, err := a.Cancel(t.Context(), waits.ID, holder, false); err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "that was cancelled", requestIs(waits.ID, assign.Cancelled))
	waits = a.linger(t, "empty", "ann", 1)
	heard(t, ann, "she waits again", requestIs(waits.ID, assign.Pending))
	execute(t, db, `update getwork.work_requested set linger_until = clock_timestamp(), look_after = clock_timestamp() + interval '1 hour' where id = $1`, waits.ID)
	if err := a.endLingering(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "her time is over", requestIs(waits.ID, assign.None))
}
