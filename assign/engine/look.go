package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/ranking"
)

// looking is this node's look at one task: one at a time, and once more if it was asked for meanwhile.
type looking struct {
	again   bool
	handed  bool          // it has a place in hand that it was given, see place.go
	placed  bool          // it has taken one
	stirred bool          // something can be handed out again: serve also those who linger
	pokes   chan struct{} // tells the run under way to check whether it is still wanted
}

// Look has this node see whether the task has requests to serve, and serve them. It does not block. Called after
// everything that may have made a request servable; called in vain it costs one indexed query.
func (e *Engine) Look(task int64) { e.lookAt(task, false) }

// Stir is Look after something has become free: work was let go of or ran out, an item was pushed or redriven. Who
// lingers is served by that at once, if an inbox or a fresh shelf can give it; otherwise the next run finds it.
func (e *Engine) Stir(task int64) { e.lookAt(task, true) }

// freed stirs tasks of which work was let go of, and those that they conflict with: who held it may have its item there
// now.
func (e *Engine) freed(ctx context.Context, tasks ...int64) {
	ctx, cancel := pg.Detached(ctx) // it is committed, whether or not the caller still waits
	defer cancel()
	partners, _ := e.partners(ctx, e.api, tasks...) // without them, who lingers there is looked at again in a while
	for _, task := range append(partners, tasks...) {
		e.Stir(task)
	}
}

func (e *Engine) lookAt(task int64, stirred bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lookAtLocked(task, stirred)
}

// lookAtLocked is lookAt for who holds e.mu.
func (e *Engine) lookAtLocked(task int64, stirred bool) {
	if l := e.looks[task]; l != nil {
		l.again = true
		l.stirred = l.stirred || stirred
		return
	}
	l := &looking{pokes: make(chan struct{}, 1), stirred: stirred}
	if e.spawn(func(ctx context.Context) { e.look(ctx, task, l) }) {
		e.looks[task] = l
	}
}

// look tries until nothing is left that this node can do for the task.
func (e *Engine) look(ctx context.Context, task int64, l *looking) {
	for {
		e.mu.Lock()
		stirred := l.stirred
		l.stirred = false
		e.mu.Unlock()
		p, moved, err := e.try(ctx, task, l, stirred)
		if err != nil {
			e.logAttempt(ctx, task, err)
			if stirred {
				time.AfterFunc(time.Second, func() { e.Stir(task) })
			}
			var away error
			if p, away = e.prospect(ctx, e.api, task); away != nil || p.view.FellDue {
				p.next = time.Second // nothing else would say so again
			}
		}
		e.mu.Lock()
		if err == nil && moved || l.again && ctx.Err() == nil {
			l.again = false
			e.mu.Unlock()
			continue // the look again: without it, who was recorded behind the round's back waits for ever
		}
		delete(e.looks, task)
		e.wakeIn(task, p.next)
		handed := l.handed
		e.mu.Unlock()
		if handed { // too late: the node is shutting down
			e.givePlace()
		}
		return
	}
}

// wakeIn looks at the task again after a while; 0: there is no reason to. e.mu must be held. It is this node's timer,
// and only decides when the database, whose clock counts, is asked. If the node dies, another's periodic look finds
// the same a little later.
func (e *Engine) wakeIn(task int64, d time.Duration) {
	if t := e.timers[task]; t != nil {
		t.Stop()
		delete(e.timers, task)
	}
	if d > 0 && e.base != nil && e.base.Err() == nil {
		e.timers[task] = time.AfterFunc(d+10*time.Millisecond, func() { e.Look(task) })
	}
}

// lookAtTimed looks at all tasks that have a timer: the database's clock was set forward, or this machine slept, and what
// they wait for may be due.
func (e *Engine) lookAtTimed() {
	e.mu.Lock()
	tasks := slices.Collect(maps.Keys(e.timers))
	e.mu.Unlock()
	for _, task := range tasks {
		e.Look(task)
	}
}

func (e *Engine) logAttempt(ctx context.Context, task int64, err error) {
	switch {
	case errors.Is(err, errNobodyWaits), errors.Is(err, errStopped):
		e.Log.Info("run given up", "task_id", task, "cause", err)
		e.Look(task)
	case ctx.Err() != nil:
		e.Log.Info("run given up", "task_id", task, "cause", "the node is shutting down")
		e.Announce.Waiting(task) // so that another takes over at once
	default:
		if facts := e.complaints.About(err); facts != nil {
			e.Log.Error("round failed; it will be tried again", append(facts, "task_id", task)...)
		}
	}
}

// poke has a run under way on this node check whether it is still wanted.
func (e *Engine) poke(task int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.looks[task]; l != nil {
		select {
		case l.pokes <- struct{}{}:
		default:
		}
	}
}

func (e *Engine) pokes(task int64) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.looks[task]; l != nil {
		return l.pokes
	}
	return nil
}

// attempt does what [plan.Next] says, once. It reports whether it moved the task on, so that asking again makes sense. If
// another node has the run lock, that one asks again when it has let go of it, which is after our requests were committed.
func (e *Engine) attempt(ctx context.Context, task int64, stirred bool) (p prospect, moved bool, err error) {
	p, err = e.prospect(ctx, e.api, task)
	p.view.Stirred = stirred
	if err == nil && plan.Next(p.view) == plan.EndLingering {
		if err = e.endLingering(ctx); err == nil {
			p, err = e.prospect(ctx, e.api, task)
			p.view.Stirred, p.view.Over = stirred, false // another node ends the rest, or they are served as any other
		}
	}
	if err != nil {
		return p, false, err
	}
	switch plan.Next(p.view) {
	case plan.ServeWithoutRun, plan.Recheck:
		moved, err = e.serveAtOnce(ctx, task, p.Settings, stirred)
		return p, moved, err
	case plan.Nothing:
		return p, false, nil
	case plan.Refresh:
		if e.places() < 2 { // it leaves a place for those who wait
			e.refreshAt(task, time.Now().Add(refreshAgain))
			return p, false, nil
		}
	}
	if !e.takeNow(ctx) {
		e.note(task, stirred)
		return p, false, nil
	}
	defer func() {
		e.leave(ctx)
		e.passOn(ctx, moved)
	}()
	moved, err = e.tryLock(ctx, task)
	return p, moved, err
}

// serveAtOnce serves without a run. A recheck for which there is no place waits as a run does, and one that fails or can't be
// had does to the requests what a run's query does.
func (e *Engine) serveAtOnce(ctx context.Context, task int64, s assign.Settings, stirred bool) (moved bool, err error) {
	err = e.serveNow(ctx, task, s)
	if !errors.Is(err, errNoRecheck) {
		return err == nil, err
	}
	cause := err
	switch {
	case assign.IsRefusal(cause, assign.Busy):
		e.note(task, stirred)
		return false, nil
	case ctx.Err() != nil, assign.IsRefusal(cause, assign.Unavailable):
		return false, cause
	}
	var refusal *assign.Refusal
	errors.As(cause, &refusal)
	after, cancel := pg.Detached(ctx)
	defer cancel()
	var r *round
	err = pgx.BeginTxFunc(after, e.api, pg.ReadCommitted, func(tx pgx.Tx) (err error) {
		r, err = e.openRound(after, tx, task)
		switch {
		case err != nil:
			return err
		case r.state.Recheck != s.Recheck || r.state.Query != s.Query:
			return nil // it was changed meanwhile, and is tried again
		case assign.IsRefusal(cause, assign.QueryRefused):
			return r.fail(after, 0, refusal.Detail)
		}
		return r.retry(after, s.QueryTimeout, 0, cause)
	})
	if err == nil {
		e.countEnded(r)
	}
	return true, err
}

func (e *Engine) tryLock(ctx context.Context, task int64) (moved bool, err error) {
	begun := e.starting()
	defer begun()
	conn, err := e.runs.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("get a connection to run: %w", err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginLocking + e.clientWatch.Setting(ctx)})
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	defer func() {
		after, cancel := pg.Detached(ctx)
		defer cancel()
		_ = tx.Rollback(after) // after a commit it does nothing
		ranking.GiveUpSpoilt(after, conn.Conn())
	}()
	return e.underLock(ctx, tx, task, begun)
}

// The settings hold for this transaction alone, so they work through a transaction pooler, too. They take no
// snapshot: the lock's statement is the first that does. lock_timeout, because skip locked still waits behind a
// lock of the whole table; the idle time-out, so that a node that froze between the query's end and its round
// loses the lock, and its round, to others; the last, so that a query ends, and its lock is free, soon after its
// node died.
const beginLocking = `begin isolation level read committed read write; set local lock_timeout = '5s'; set local idle_in_transaction_session_timeout = '20s'`

// runLock locks the task's row, or returns no row: it is locked, or there is none. "no key update" and not
// "update": inserting a request takes a key share lock on the row it refers to, which "update" would have wait for
// the whole query, and one uncommitted click would make a free row look busy. Nothing but the key stands in the
// condition: one on a column that changes can hide a free row.
const runLock = `select pg_backend_pid() from getwork.task where id = $1 for no key update skip locked`

func (e *Engine) underLock(ctx context.Context, tx pgx.Tx, task int64, begun func()) (moved bool, err error) {
	var backend int32
	err = tx.QueryRow(ctx, e.SQL(runLock), task).Scan(&backend)
	if errors.Is(err, pgx.ErrNoRows) {
		e.Steps(ctx, StepBusy)
		e.runBegan() // without a listener nobody else says so
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock the task: %w", err)
	}
	e.Steps(ctx, StepLocked)
	// A free lock is no reason to run: its last holder may have served us a millisecond ago. A statement after
	// the lock's sees what he committed.
	p, err := e.prospect(ctx, aside{tx}, task)
	if err != nil {
		return false, err
	}
	p.backend, p.view.Locked = backend, true
	switch plan.Next(p.view) {
	case plan.CancelDeleted:
		return true, e.endDeleted(ctx, tx, task)
	case plan.ServeWithoutRun:
		return true, e.serveShelf(ctx, tx, task)
	case plan.Run, plan.Refresh:
		return true, e.run(ctx, tx, p, begun)
	case plan.Recheck: // it became fresh since we looked
		e.Look(task)
		return false, nil
	}
	e.Steps(ctx, StepNothing)
	e.Look(task) // who was recorded since we read has found the lock taken: once more when it is free
	return false, nil
}

// serveShelf is a round that hands out what the last run left.
func (e *Engine) serveShelf(ctx context.Context, tx pgx.Tx, task int64) error {
	r, err := e.openRound(ctx, tx, task)
	if err != nil {
		return err
	}
	if !r.state.serves() || r.state.Recheck != "" {
		return tx.Rollback(ctx) // it went stale since we looked, or is to be rechecked
	}
	if err := r.serve(ctx, r.supply()); err != nil {
		return err
	}
	return e.commit(ctx, r, 0)
}

const cancelPending = `
update getwork.work_requested
set state = 'cancelled', requested = 0, reason = null, completed_at = clock_timestamp(), round_id = $2
where task_id = $1 and state = 'pending'
returning id`

// endDeleted cancels what was recorded beside the task's deletion.
func (e *Engine) endDeleted(ctx context.Context, tx pgx.Tx, task int64) error {
	r, err := e.openRound(ctx, tx, task)
	if err != nil {
		return err
	}
	if err := r.readWaiting(ctx); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, e.SQL(cancelPending), task, r.id)
	if err == nil {
		r.answered, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		r.ends = map[assign.State]int{assign.Cancelled: len(r.answered)}
	}
	if err != nil {
		return fmt.Errorf("end requests of a deleted task: %w", err)
	}
	return e.commit(ctx, r, 0)
}
