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
	"getwork/assign/records"
)

// serveLoop is this node's work on one task. A task has one loop at a time, which goes round once more if it was woken
// meanwhile. Engine.mu guards its fields.
type serveLoop struct {
	again      bool          // it was woken meanwhile
	slotHanded bool          // a run slot was handed to it, and it has not used it yet
	hasSlot    bool          // it has taken a run slot
	lingering  bool          // something can be handed out again: serve lingering requests, too
	pokes      chan struct{} // asks the run under way to check whether it is still wanted
}

// Wake makes this node serve the task's requests if it has any. It does not block. It is called after everything that may
// have made a request servable. A needless call costs one indexed query.
func (e *Engine) Wake(task int64) { e.wake(task, false) }

// WakeLingering is Wake after something has become free: work was closed or its lease ran out, or an item was pushed or
// redriven. Lingering requests get it at once if an inbox or a fresh shelf can hand it out. Otherwise the next run finds it.
func (e *Engine) WakeLingering(task int64) { e.wake(task, true) }

// WakeFreed wakes the tasks whose work was closed, and those that they conflict with: the former holder may now have the item
// there.
func (e *Engine) WakeFreed(ctx context.Context, tasks ...int64) {
	ctx, cancel := pg.Detached(ctx) // the change is committed, whether or not the caller still waits
	defer cancel()
	partners, _ := e.Partners(ctx, e.DB, tasks...) // without them, requests that linger there wait for their look_after
	for _, task := range append(partners, tasks...) {
		e.WakeLingering(task)
	}
}

const selectPartners = `select distinct other_id from getwork.task_conflict where task_id = any($1::bigint[])`

// Partners returns the tasks that some tasks conflict with.
func (e *Engine) Partners(ctx context.Context, db rowser, tasks ...int64) ([]int64, error) {
	rows, err := db.Query(ctx, e.SQL(selectPartners), tasks)
	if err != nil {
		return nil, fmt.Errorf("read conflicts: %w", err)
	}
	partners, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read conflicts: %w", err)
	}
	return partners, nil
}

// rowser is a pool or a transaction.
type rowser interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (e *Engine) wake(task int64, lingering bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wakeLocked(task, lingering)
}

// wakeLocked is wake for callers that hold e.mu.
func (e *Engine) wakeLocked(task int64, lingering bool) {
	if l := e.loops[task]; l != nil {
		l.again = true
		l.lingering = l.lingering || lingering
		return
	}
	l := &serveLoop{pokes: make(chan struct{}, 1), lingering: lingering}
	if e.spawn(func(ctx context.Context) { e.runServeLoop(ctx, task, l) }) {
		e.loops[task] = l
	}
}

// runServeLoop serves the task until nothing is left that this node can do for it. It reads l.again and removes the loop from e.loops
// in one critical section: a Wake between the two would reach a loop that ends, and be lost.
func (e *Engine) runServeLoop(ctx context.Context, task int64, l *serveLoop) {
	for {
		e.mu.Lock()
		lingering := l.lingering
		l.lingering = false
		e.mu.Unlock()
		p, moved, err := e.slots.serveWithSlot(ctx, task, l, lingering)
		if err != nil {
			e.logServeError(ctx, task, err)
			if lingering {
				time.AfterFunc(time.Second, func() { e.WakeLingering(task) })
			}
			var away error
			if p, away = e.readTaskView(ctx, e.DB, task); away != nil || p.view.FellDue {
				p.next = time.Second // nothing else would wake the task for this
			}
		}
		e.mu.Lock()
		if err == nil && moved || l.again && ctx.Err() == nil {
			l.again = false
			e.mu.Unlock()
			continue // look again: without it a request that was recorded after the round's read would wait for ever
		}
		delete(e.loops, task)
		e.wakeAfter(task, p.next)
		handed := l.slotHanded
		e.mu.Unlock()
		if handed { // nobody uses it any more: the node is shutting down
			e.slots.giveSlot()
		}
		return
	}
}

// wakeAfter wakes the task after a while; 0: there is no reason to. e.mu must be held. The timer only decides when this node
// asks the database, whose clock counts. If the node dies, another node's rescuer finds the same a little later.
func (e *Engine) wakeAfter(task int64, d time.Duration) {
	if t := e.timers[task]; t != nil {
		t.Stop()
		delete(e.timers, task)
	}
	if d > 0 && e.base != nil && e.base.Err() == nil {
		e.timers[task] = time.AfterFunc(d+10*time.Millisecond, func() { e.Wake(task) })
	}
}

// wakeTimed wakes all tasks that have a timer. The database's clock was set, or this machine slept, so what they wait
// for may be due.
func (e *Engine) wakeTimed() {
	e.mu.Lock()
	tasks := slices.Collect(maps.Keys(e.timers))
	e.mu.Unlock()
	for _, task := range tasks {
		e.Wake(task)
	}
}

// logServeError logs why a loop served nobody. After a run that nobody wanted any more it wakes the task again. If this node shuts
// down, it notifies the others.
func (e *Engine) logServeError(ctx context.Context, task int64, err error) {
	switch {
	case errors.Is(err, errNobodyWaits), errors.Is(err, errStopped):
		e.Log.Info("run given up", "task_id", task, "cause", err)
		e.Wake(task)
	case ctx.Err() != nil:
		e.Log.Info("run given up", "task_id", task, "cause", "the node is shutting down")
		e.Announce.Waiting(task) // so that another node takes over at once
	default:
		if facts := e.logLimit.About(err); facts != nil {
			e.Log.Error("round failed; it will be tried again", append(facts, "task_id", task)...)
		}
	}
}

// Poke makes a run on this node check whether it is still wanted; all runs if a request over several tasks, those of task 0, has changed.
func (e *Engine) Poke(task int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for of, l := range e.loops {
		if of != task && task != 0 {
			continue
		}
		select {
		case l.pokes <- struct{}{}:
		default:
		}
	}
}

// pokes returns the channel that Poke sends to; nil, on which nothing is ever received, if this node does not serve the task.
func (e *Engine) pokes(task int64) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.loops[task]; l != nil {
		return l.pokes
	}
	return nil
}

// serveOnce does what [plan.Next] says, once. It reports whether it moved the task on, so that it should be called again. If
// another node has the run lock, that node looks again when it has released the lock, which is after this node's requests
// were committed.
func (e *Engine) serveOnce(ctx context.Context, task int64, lingering bool) (p taskView, moved bool, err error) {
	p, err = e.readTaskView(ctx, e.DB, task)
	p.view.Freed = lingering
	if err == nil && plan.Next(p.view) == plan.EndLingering {
		if err = e.endLingering(ctx); err == nil {
			p, err = e.readTaskView(ctx, e.DB, task)
			p.view.Freed, p.view.Over = lingering, false // another node ends the rest, or they are served like any other request
		}
	}
	if err != nil {
		return p, false, err
	}
	switch plan.Next(p.view) {
	case plan.ServeWithoutRun, plan.Recheck:
		moved, err = e.serveAtOnce(ctx, task, p.Settings, lingering)
		return p, moved, err
	case plan.Nothing:
		return p, false, nil
	case plan.Refresh:
		if !e.mayRefresh(task) {
			return p, false, nil
		}
	}
	if !e.slots.takeFreeSlot(ctx) {
		e.slots.park(task, lingering)
		return p, false, nil
	}
	defer func() {
		e.slots.leaveSlot(ctx)
		e.slots.passSlotOn(ctx, moved)
	}()
	moved, err = e.tryLock(ctx, task)
	return p, moved, err
}

// serveAtOnce serves without a run. If the recheck gets no run slot, it waits for one as a run does. If the recheck fails,
// its error does to the requests what a query's error does.
func (e *Engine) serveAtOnce(ctx context.Context, task int64, s assign.Settings, lingering bool) (moved bool, err error) {
	err = e.serveNow(ctx, task, s)
	if !errors.Is(err, errNoRecheck) {
		return err == nil, err
	}
	cause := err
	switch {
	case assign.IsRefusal(cause, assign.Busy):
		e.slots.park(task, lingering)
		return false, nil
	case ctx.Err() != nil, assign.IsRefusal(cause, assign.Unavailable):
		return false, cause
	}
	var refusal *assign.Refusal
	errors.As(cause, &refusal)
	after, cancel := pg.Detached(ctx)
	defer cancel()
	var r *round
	err = pgx.BeginTxFunc(after, e.DB, pg.ReadCommitted, func(tx pgx.Tx) (err error) {
		r, err = e.openRound(after, tx, task)
		switch {
		case err != nil:
			return err
		case r.state.Paused, r.state.deleted, r.state.Recheck != s.Recheck, r.state.Query != s.Query:
			return nil // the task was paused or changed meanwhile: the error is nobody's, and the loop looks again
		case assign.IsRefusal(cause, assign.QueryRefused):
			return r.fail(after, &pg.Writes{}, 0, refusal.Detail)
		}
		return r.retry(after, s.QueryTimeout, 0, cause)
	})
	if err == nil {
		e.countEnded(r)
		e.traceAnswered(r)
		e.wakeNext(r)
	}
	return true, err
}

// serveNow is a round without a run, on this node, for all waiting requests.
func (e *Engine) serveNow(ctx context.Context, task int64, s assign.Settings) error {
	return e.withRecheckedShelf(ctx, task, s, 0, func(found ranking.Matching) error {
		tx, err := e.DB.BeginTx(ctx, pg.ReadCommitted)
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		defer func() {
			after, cancel := pg.Detached(ctx)
			defer cancel()
			_ = tx.Rollback(after) // after a commit this does nothing
		}()
		r, err := e.openRound(ctx, tx, task)
		if err != nil || !r.state.serves() {
			return err
		}
		r.matching = found
		if err := r.serve(ctx, r.supply()); err != nil {
			return err
		}
		return e.commit(ctx, r, 0)
	})
}

// serveShelf is a round that hands out what the last run left.
func (e *Engine) serveShelf(ctx context.Context, tx pgx.Tx, task int64) error {
	r, err := e.roundUnderLock(ctx, tx, task)
	if err != nil {
		return err
	}
	if !r.state.serves() || r.state.Recheck != "" {
		return tx.Rollback(ctx) // the shelf has ended meanwhile, or must be rechecked first
	}
	if err := r.serve(ctx, r.supply()); err != nil {
		return err
	}
	return e.commit(ctx, r, 0)
}

const cancelPending = `
with over as materialized (
  select id from getwork.work_requested where task_id = $1 and state = 'pending' order by id for update
)
update getwork.work_requested r
set state = 'cancelled', requested = 0, reason = null, completed_at = clock_timestamp(), round_id = $2
from over o
where r.id = o.id and r.state = 'pending'
returning r.id`

// endDeleted cancels requests that were recorded while the task was being deleted.
func (e *Engine) endDeleted(ctx context.Context, tx pgx.Tx, task int64) error {
	r, err := e.roundUnderLock(ctx, tx, task)
	if err != nil {
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

// taskView is what scheduling sees of a task, before any lock or right after the run lock.
type taskView struct {
	assign.Settings
	task    int64
	version int
	backend int32 // the server process that holds the run lock for us
	view    plan.View
	next    time.Duration // until the clock alone changes the view; 0: never
}

// It asks for the first of each index: whether there is one that meets a condition PostgreSQL may answer by reading all who linger.
var selectTaskView = `
select s.version, s.deleted_at is not null,
  s.paused or ` + records.HeldBack + `,
  ` + shelfServes + `, ` + shelfExpired + `, s.paused,
  coalesce(line.look_after <= clock.at, false) or line.unread or nexts.waits, coalesce(line.look_after <= clock.at, false) or nexts.due,
  coalesce(line.linger_until <= clock.at, false), line.first is not null or nexts.pending,
  v.query is null and exists (
    select from getwork.item i where i.task_id = s.task_id and i.done_at is null and i.due_at < 'infinity' and i.due_at <= clock.at)
    or s.needs is not null and exists (
    select from getwork.item i where i.task_id = s.task_id and i.done_at is null and i.needs_until <= clock.at),
  not s.paused and s.deleted_at is null and ` + inUse + `
    and coalesce(` + renewIn + ` <= 0, false) and not ` + records.HeldBack + `,
  s.name,
  coalesce((
    select extract(epoch from min(t.at) - clock.at)
    from (
      select min(r.look_after) as at from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after > clock.at
      union all
      select min(r.linger_until) from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.linger_until > clock.at
      union all
      select unnest(array[s.failed_until, s.retry_at]) where ` + records.HeldBack + `
      union all
      select min(i.due_at) from getwork.item i where v.query is null and i.task_id = s.task_id and i.done_at is null and i.due_at < 'infinity'
      union all
      select min(i.needs_until) from getwork.item i where s.needs is not null and i.task_id = s.task_id and i.done_at is null
    ) t
    where t.at > clock.at and (line.first is not null or nexts.pending)), 0)::float8,
  ` + records.SettingsColumns + `
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
left join getwork.run u on u.id = s.shelf_run
cross join (select clock_timestamp() as at offset 0) clock
cross join lateral (
  select
    (select min(r.look_after) from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending') as look_after,
    (select min(r.linger_until) from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending') as linger_until,
    exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after is null) as unread,
    (select r.id from getwork.work_requested r where r.task_id between s.task_id and s.task_id and r.state = 'pending' order by r.task_id, r.id limit 1) as first
  offset 0) line
cross join lateral (
  select
    exists (select from getwork.work_requested r where r.task_id = 0 and r.state = 'pending' and s.task_id = any(r.targets)) as pending,
    not s.paused and s.deleted_at is null and exists (
      select from getwork.work_requested r where r.task_id = 0 and r.state = 'pending' and r.todo[1] = s.task_id and (r.look_after is null or r.look_after <= clock.at)) as waits,
    not s.paused and s.deleted_at is null and exists (
      select from getwork.work_requested r where r.task_id = 0 and r.state = 'pending' and r.todo[1] = s.task_id and r.look_after <= clock.at) as due
  offset 0) nexts
where s.task_id = $1`

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// aside reads one row in a transaction, and releases the tables that it read. Otherwise their locks would last until the
// transaction ends, which may be as long as a user's query. A migration would wait for that, and everybody behind the
// migration.
type aside struct{ tx pgx.Tx }

// QueryRow sets the savepoint in a statement of its own. In a batch the query would be prepared before the savepoint exists,
// and preparing locks its tables, too.
func (a aside) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if _, err := a.tx.Exec(ctx, "savepoint aside"); err != nil {
		return asideRow{err: err}
	}
	return asideRow{a, ctx, a.tx.QueryRow(ctx, sql, args...), nil}
}

type asideRow struct {
	aside
	ctx context.Context
	row pgx.Row
	err error
}

// Scan implements [pgx.Row].
func (r asideRow) Scan(into ...any) error {
	if r.err == nil {
		r.err = r.row.Scan(into...)
	}
	if r.err == nil {
		_, r.err = r.tx.Exec(r.ctx, "rollback to savepoint aside")
	}
	return r.err
}

// readTaskView reads a task in one statement, and so from one snapshot. db is a pool, or aside in the run lock's transaction. A view
// that was read without the lock is a hint: what it leads to reads again under its lock.
func (e *Engine) readTaskView(ctx context.Context, db queryer, task int64) (taskView, error) {
	p := taskView{task: task}
	var next float64
	v := &p.view
	into := []any{&p.version, &v.Deleted, &v.Held, &v.Serves, &v.Stale, &v.Paused, &v.Waits, &v.Due, &v.Over, &v.Pending, &v.FellDue, &v.Refresh}
	into = append(into, &p.Name, &next)
	if err := db.QueryRow(ctx, e.SQL(selectTaskView), task).Scan(append(into, records.IntoSettings(&p.Settings)...)...); err != nil {
		return p, fmt.Errorf("read the task: %w", err)
	}
	v.Stale = v.Stale && v.Serves
	p.Paused, v.Inbox, v.Recheck = v.Paused, p.Inbox(), p.Recheck != ""
	p.next = time.Duration(next * float64(time.Second))
	return p, nil
}
