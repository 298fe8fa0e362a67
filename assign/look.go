package assign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Counter counts what happened on this node since it started.
type Counter struct{ n atomic.Int64 }

// Load is the count.
func (c *Counter) Load() int64 { return c.n.Load() }

// looking is this node's look at one task: one at a time, and once more if it was asked for meanwhile.
type looking struct {
	again bool
	pokes chan struct{} // tells the run under way to check whether it is still wanted
}

// Look has this node see whether the task has requests to serve, and serve them. It does not block. Called after
// everything that may have made a request servable; called in vain it costs one indexed query.
func (e *Engine) Look(task int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.looks[task]; l != nil {
		l.again = true
		return
	}
	l := &looking{pokes: make(chan struct{}, 1)}
	if e.spawn(func(ctx context.Context) { e.look(ctx, task, l) }) {
		e.looks[task] = l
	}
}

// look tries until nothing is left that this node can do for the task.
func (e *Engine) look(ctx context.Context, task int64, l *looking) {
	for {
		p, moved, err := e.attempt(ctx, task)
		if err != nil {
			e.logAttempt(ctx, task, err)
			p, _ = e.prospect(ctx, e.api, task)
		}
		e.mu.Lock()
		if err == nil && moved || l.again && ctx.Err() == nil {
			l.again = false
			e.mu.Unlock()
			continue // the look again: without it, who was recorded behind the round's back waits for ever
		}
		delete(e.looks, task)
		e.wakeIn(task, p.next)
		e.mu.Unlock()
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

func (e *Engine) logAttempt(ctx context.Context, task int64, err error) {
	switch {
	case errors.Is(err, errNobodyWaits), errors.Is(err, errStopped):
		e.Log.Info("run given up", "task_id", task, "cause", err)
		e.Look(task)
	case ctx.Err() != nil:
		e.Log.Info("run given up", "task_id", task, "cause", "the node is shutting down")
		e.Announce.Waiting(task) // so that another takes over at once
	default:
		e.Log.Error("round failed; it will be tried again", "task_id", task, "error", err)
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

// servable is a pending request r that a round could end now, but for what its task's state says: no round has
// read it yet, or its time to be looked at again has come. Never by comparing its time or id with a run's: a click
// can be stamped before a round reads and commit after it.
const servable = `r.state = 'pending' and (r.look_after is null or r.look_after <= clock_timestamp())`

// prospect is what a look sees of a task, before any lock or right after the run lock.
type prospect struct {
	Settings
	task    int64
	version int

	deleted, held bool // held back: paused, or a back-off or retry delay runs
	fresh         bool // the shelf can be handed out
	waits         bool // somebody can be served
	due           bool // somebody who lingers asks for a run, whatever the shelf says

	over          bool // somebody has lingered for long enough

	next time.Duration // until the clock alone changes any of that; 0: it won't
}

const selectProspect = `
select s.version, s.deleted_at is not null,
  s.paused or coalesce(s.failed_until > clock_timestamp(), false) or coalesce(s.retry_at > clock_timestamp(), false),
  coalesce(s.fresh_until > clock_timestamp() and s.shelf_run is not null, false), s.paused,
  exists (select from getwork.work_requested r where r.task_id = s.task_id and ` + servable + `),
  exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after <= clock_timestamp()),
  exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.linger_until <= clock_timestamp()),
  s.name,
  coalesce((
    select extract(epoch from min(t.at) - clock_timestamp())
    from getwork.work_requested r
    cross join lateral (values (r.look_after), (r.linger_until), (s.failed_until), (s.retry_at)) t (at)
    where r.task_id = s.task_id and r.state = 'pending' and t.at > clock_timestamp()), 0)::float8,
  ` + settingsColumns + `
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.task_id = $1`

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (e *Engine) prospect(ctx context.Context, db queryer, task int64) (prospect, error) {
	p := prospect{task: task}
	settings, done := intoSettings(&p.Settings)
	var next float64
	into := []any{&p.version, &p.deleted, &p.held, &p.fresh, &p.Paused, &p.waits, &p.due, &p.over, &p.Name, &next}
	if err := db.QueryRow(ctx, e.SQL(selectProspect), task).Scan(append(into, settings...)...); err != nil {
		return p, fmt.Errorf("read the task: %w", err)
	}
	done()
	p.next = time.Duration(next * float64(time.Second))
	return p, nil
}

// nothing reports whether there is nothing to do now. A fresh shelf serves during a back-off, too.
func (p prospect) nothing() bool {
	return !p.waits || p.Paused && !p.deleted || p.held && !p.fresh && !p.deleted
}

// attempt is one try at a task: look, lock, look again under the lock, and then serve from the shelf or run. It
// reports whether it moved the task on, so that looking again makes sense. If somebody else has the lock he looks
// again when he has let go of it, and that is after our requests were committed.
func (e *Engine) attempt(ctx context.Context, task int64) (p prospect, moved bool, err error) {
	p, err = e.prospect(ctx, e.api, task)
	if err == nil && p.over {
		if err = e.endLingering(ctx); err == nil {
			p, err = e.prospect(ctx, e.api, task)
		}
	}
	if err != nil || p.nothing() {
		return p, false, err
	}
	select {
	case <-e.slots:
		defer e.freeSlot()
	default:
		e.note(task)
		return p, false, nil
	}
	moved, err = e.tryLock(ctx, task)
	return p, moved, err
}

func (e *Engine) tryLock(ctx context.Context, task int64) (moved bool, err error) {
	conn, err := e.runs.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("get a connection to run: %w", err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: e.beginRunLock(ctx)})
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	defer func() {
		after, cancel := e.afterQuery(ctx)
		defer cancel()
		_ = tx.Rollback(after) // after a commit it does nothing
	}()
	return e.underLock(ctx, tx, task)
}

// The settings hold for this transaction alone, so they work through a transaction pooler, too. They take no
// snapshot: the lock's statement is the first that does. lock_timeout, because skip locked still waits behind a
// lock of the whole table; the idle time-out, so that a node that froze between the query's end and its round
// loses the lock, and its round, to others; the last, so that a query ends, and its lock is free, soon after its
// node died.
const (
	beginLocking = `begin isolation level read committed read write; set local lock_timeout = '5s'; set local idle_in_transaction_session_timeout = '20s'`
	watchClient  = `; set local client_connection_check_interval = '500ms'`
)

// beginRunLock begins a run's transaction. Servers on some platforms can't watch their clients, and refuse to be told
// to; this is found out once.
func (e *Engine) beginRunLock(ctx context.Context) string {
	e.watches.Do(func() {
		tx, err := e.api.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginLocking + watchClient})
		if err == nil {
			_ = tx.Rollback(ctx)
			e.begin = beginLocking + watchClient
			return
		}
		e.begin = beginLocking
		e.Log.Warn("this server does not watch its clients: the query of a node that died runs to its end", "error", err)
	})
	return e.begin
}

// runLock locks the task's row, or returns no row: it is locked, or there is none. "no key update" and not
// "update": inserting a request takes a key share lock on the row it refers to, which "update" would have wait for
// the whole query, and one uncommitted click would make a free row look busy. Nothing but the key stands in the
// condition: one on a column that changes can hide a free row.
const runLock = `select id from getwork.task where id = $1 for no key update skip locked`

func (e *Engine) underLock(ctx context.Context, tx pgx.Tx, task int64) (moved bool, err error) {
	var id int64
	err = tx.QueryRow(ctx, e.SQL(runLock), task).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		e.Steps(ctx, StepBusy)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock the task: %w", err)
	}
	e.Steps(ctx, StepLocked)
	// A free lock is no reason to run: its last holder may have served us a millisecond ago. A statement after
	// the lock's sees what he committed.
	p, err := e.prospect(ctx, tx, task)
	switch {
	case err != nil || p.nothing():
		return false, err
	case p.deleted:
		return true, e.endDeleted(ctx, tx, task)
	case p.fresh && (!p.due || p.held):
		return true, e.serveShelf(ctx, tx, task)
	}
	return true, e.run(ctx, tx, p)
}

// serveShelf is a round that hands out what the last run left.
func (e *Engine) serveShelf(ctx context.Context, tx pgx.Tx, task int64) error {
	r, err := e.openRound(ctx, tx, task)
	if err != nil {
		return err
	}
	if !r.state.fresh || r.state.Paused || r.state.deleted {
		return tx.Rollback(ctx) // it went stale since we looked
	}
	if err := r.serve(ctx, shelf{r}); err != nil {
		return err
	}
	return e.commit(ctx, r, 0)
}

const cancelPending = `
update getwork.work_requested
set state = 'cancelled', requested = 0, completed_at = clock_timestamp(), round_id = $2
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
	}
	if err != nil {
		return fmt.Errorf("end requests of a deleted task: %w", err)
	}
	return e.commit(ctx, r, 0)
}

// note remembers a task that waits for a place to run, and tells the other nodes, which may have one.
func (e *Engine) note(task int64) {
	e.mu.Lock()
	known := e.noted[task]
	e.noted[task] = true
	free := len(e.slots) > 0
	e.mu.Unlock()
	if !known {
		e.Announce.Waiting(task)
	}
	if free { // one was given back between our look and our note
		e.lookAtNoted()
	}
}

func (e *Engine) freeSlot() {
	e.slots <- struct{}{}
	e.lookAtNoted()
}

const oldestFirst = `
select task_id
from getwork.work_requested
where task_id = any($1::bigint[]) and state = 'pending'
group by task_id
order by min(id)`

// lookAtNoted looks at all tasks that waited for a place, the one with the oldest request first.
func (e *Engine) lookAtNoted() {
	e.mu.Lock()
	tasks := make([]int64, 0, len(e.noted))
	for t := range e.noted {
		tasks = append(tasks, t)
	}
	clear(e.noted)
	if len(tasks) < 2 {
		e.mu.Unlock()
		for _, t := range tasks {
			e.Look(t)
		}
		return
	}
	defer e.mu.Unlock()
	e.spawn(func(ctx context.Context) {
		rows, err := e.api.Query(ctx, e.SQL(oldestFirst), tasks)
		if err == nil {
			tasks, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		if err != nil {
			e.Log.Warn("order of waiting tasks", "error", err) // then in any order
		}
		for _, t := range tasks {
			e.Look(t)
		}
	})
}

const selectOrphans = `
select r.task_id, array_agg(r.id order by r.id)
from getwork.work_requested r join getwork.task_state s using (task_id)
where ` + servable + `
  and coalesce(r.look_after, r.created_at) < clock_timestamp() - interval '2 seconds'
  and (s.deleted_at is not null
    or not s.paused and (s.fresh_until > clock_timestamp()
      or coalesce(s.failed_until <= clock_timestamp(), true) and coalesce(s.retry_at <= clock_timestamp(), true)))
  and coalesce((select u.finished_at from getwork.run u where u.task_id = s.task_id order by u.id desc limit 1)
    < clock_timestamp() - interval '2 seconds', true)
group by r.task_id
order by min(r.id)`

// lookForOrphans looks, all along, for requests that nobody serves: their node died before it looked, or its
// holder did. Every node does, whether or not anybody waits on it.
func (e *Engine) lookForOrphans(ctx context.Context) error {
	for {
		wait := e.LookEvery/2 + rand.N(e.LookEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := e.endLingering(ctx); err != nil && ctx.Err() == nil {
			e.Log.Warn("look for requests whose time is over", "error", err)
			continue
		}
		rows, err := e.api.Query(ctx, e.SQL(selectOrphans))
		if err != nil {
			continue // the database is away; others say so
		}
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[orphans])
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("look for requests that nobody serves", "error", err)
		}
		for _, o := range found {
			e.rescue(o)
		}
	}
}

// orphans are a task's requests that should have been served two seconds ago.
type orphans struct {
	Task     int64
	Requests []int64
}

const countAnswered = `select count(*) from getwork.work_requested where id = any($1::bigint[]) and state <> 'pending' and round_id is not null`

// rescue takes the normal path for requests that only the periodic look found, and counts those that it served:
// not the tasks that waited for a place to run, and not those that this node was looking at anyway.
func (e *Engine) rescue(o orphans) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.looks[o.Task] != nil || e.noted[o.Task] {
		return
	}
	l := &looking{pokes: make(chan struct{}, 1)}
	began := e.spawn(func(ctx context.Context) {
		_, moved, err := e.attempt(ctx, o.Task)
		if err == nil && moved {
			var n int64
			if err := e.api.QueryRow(ctx, e.SQL(countAnswered), o.Requests).Scan(&n); err == nil && n > 0 {
				e.Rescued.n.Add(n)
				e.Log.Warn("served requests that nobody else did", "task_id", o.Task, "requests", n)
			}
		}
		e.look(ctx, o.Task, l)
	})
	if began {
		e.looks[o.Task] = l
	}
}

// sortedHolders is the order in which requests are inserted, on every node: two batches with the same holders then
// wait for each other in one direction only.
func sortedHolders(clicks []*click) []*click {
	sorted := slices.Clone(clicks)
	slices.SortStableFunc(sorted, func(a, b *click) int { return a.holder.compare(b.holder) })
	return sorted
}
