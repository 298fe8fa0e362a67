package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
	"getwork/assign/tracing"
	"getwork/notify"
)

// The settings apply to this transaction alone, so they also work through a transaction pooler. They take no snapshot: the
// lock's statement is the first that does. lock_timeout is set because skip locked still waits behind a lock of the whole
// table. The idle time-out makes a node that froze between the query's end and its round lose the lock, and its round, to
// others. The round then has the limits of any other (roundUnderLock). ClientWatch's setting follows, so that a query ends and its
// lock is free soon after its node died.
const beginLocking = `begin isolation level read committed read write; set local lock_timeout = '5s'; set local idle_in_transaction_session_timeout = '20s'`

// tryLock takes a connection of the runs' pool, and tries the run lock. It reports whether it moved the task on, so that the caller
// must look again. That another session has the lock is no error. The caller must have a run slot.
func (e *Engine) tryLock(ctx context.Context, task int64) (moved bool, err error) {
	begun := e.starting()
	defer begun()
	conn, err := e.runs.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("get a connection for the run: %w", err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginLocking + e.clientWatch.Setting(ctx)})
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	defer func() {
		after, cancel := pg.Detached(ctx)
		defer cancel()
		_ = tx.Rollback(after) // after a commit this does nothing
		ranking.GiveUpSpoilt(after, conn.Conn())
	}()
	return e.underLock(ctx, tx, task, begun)
}

// starting lets one serve loop at a time go on, until begun is called, if all of the node's pools share a pooler's few
// connections. A run that begins holds one connection with the run lock, and waits for another to be recorded. If runs held
// all connections so, each would wait for the others for ever. The pooler therefore needs more connections than it has nodes.
func (e *Engine) starting() (begun func()) {
	if !e.Pooled {
		return func() {}
	}
	e.starts.Lock()
	return sync.OnceFunc(e.starts.Unlock)
}

// runLock locks the task's row. It returns no row if the row is locked or does not exist. "no key update" and not "update":
// inserting a request takes a key share lock on the row that it refers to. "update" would make it wait for the whole query,
// and one uncommitted click would make a free row look busy. The condition names only the key, because a condition on a
// column that changes can hide a free row.
const runLock = `select pg_backend_pid() from getwork.task where id = $1 for no key update skip locked`

// underLock tries the run lock in a transaction that has executed nothing before, and does what [plan.Next] says. The lock lasts
// until the transaction ends. begun: see runQuery.
func (e *Engine) underLock(ctx context.Context, tx pgx.Tx, task int64, begun func()) (moved bool, err error) {
	var backend int32
	err = tx.QueryRow(ctx, e.SQL(runLock), task).Scan(&backend)
	if errors.Is(err, pgx.ErrNoRows) {
		e.Steps(ctx, StepBusy)
		e.rescueSoon() // without a listener nothing else says that a run is under way
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock the task: %w", err)
	}
	e.Steps(ctx, StepLocked)
	// A free lock is no reason to run: its last holder may have served us a millisecond ago. A statement after the lock's
	// sees what that holder committed.
	p, err := e.readTaskView(ctx, aside{tx}, task)
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
		return true, e.runQuery(ctx, tx, p, begun)
	case plan.Recheck: // the shelf became fresh meanwhile
		e.Wake(task)
		return false, nil
	}
	e.Steps(ctx, StepNothing)
	e.Wake(task) // a request recorded since the read has found the lock taken: look again when it is free
	return false, nil
}

// roundUnderLock is openRound in the transaction of the run lock. With the run lock's own limits the round would give up the assign
// lock's queue sooner than all others, and with it the query's result; and a node that froze in the round would keep the assign lock
// for longer than clicks wait for it.
func (e *Engine) roundUnderLock(ctx context.Context, tx pgx.Tx, task int64) (*round, error) {
	if _, err := tx.Exec(ctx, pg.OfARound); err != nil {
		return nil, fmt.Errorf("begin the round: %w", err)
	}
	return e.openRound(ctx, tx, task)
}

// These errors say why a run was given up before its query ended.
var (
	errNobodyWaits = errors.New("nobody waits any more")
	errStopped     = errors.New("the task was paused, changed or deleted")
	errCalledLost  = errors.New("another node has called the run lost")
)

const (
	closeOrphans = `update getwork.run set state = 'lost', finished_at = clock_timestamp() where task_id = $1 and state = 'running'`
	insertRun    = `insert into getwork.run (task_id, version, node, backend) values ($1, $2, $3, $4)
returning id, coalesce((select max(w.id) from getwork.work w), 0)`
)

// beginRun writes the run row in a transaction of its own, so that others see it while the query runs. The holder of the run
// lock knows that no other run of the task is alive, so it ends any run that is still marked as running. since is the highest id
// of all committed work, of any task; 0: there is none.
func (e *Engine) beginRun(ctx context.Context, t taskView) (id, since int64, err error) {
	var lost int64
	var waiting tracing.Waiting
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		tag, err := tx.Exec(ctx, e.SQL(closeOrphans), t.task)
		if err != nil {
			return nil, err
		}
		lost = tag.RowsAffected()
		err = tx.QueryRow(ctx, e.SQL(insertRun), t.task, t.version, e.Node, t.backend).Scan(&id, &since)
		if err == nil {
			waiting, err = e.Trace.Waiting(ctx, tx, t.task)
		}
		return []notify.Change{{Task: t.task, Runs: []int64{id}}}, err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("record the run: %w", err)
	}
	e.RunEnds[RunLost].n.Add(lost)
	e.Trace.RunBegan(id, t.Name, waiting)
	return id, since, nil
}

// runQuery executes the query for the waiting requests and hands out its result, all under the run lock that tx holds. It commits,
// or leaves tx to be rolled back. A nil error means that the task was moved on, so the caller must look again. begun is called when
// the run is recorded; see starting.
func (e *Engine) runQuery(ctx context.Context, tx pgx.Tx, t taskView, begun func()) error {
	id, since, err := e.beginRun(ctx, t)
	begun()
	if err != nil {
		return err
	}
	e.Steps(ctx, StepRunBegins)
	began := time.Now()
	found, err := e.rank(ctx, tx, t, id)
	e.Steps(ctx, StepQueried)

	after, cancel := pg.Detached(ctx)
	defer cancel()
	var fault *ranking.ErrQuery
	end := RunFinished
	defer func() { e.Trace.RunEnded(id, cmp.Or(string(end), "unknown")) }()
	switch {
	case err == nil:
		err = e.handOut(after, tx, t, &runResult{Result: found, run: id, since: since})
	case errors.As(err, &fault):
		end, err = RunFailed, fault
		if !tx.Conn().IsClosed() { // or the run lock is gone with it, and giveUp fails the requests
			err = e.failRequests(after, tx, t, id, fault.Message)
		}
	}
	if err == nil {
		e.ran(ctx, t, id, end, time.Since(began))
		return nil
	}
	ending, done := pg.Detached(ctx) // after may have expired
	defer done()
	end, failed := e.giveUp(ending, tx, t, id, err)
	if failed == nil && end != RunLost {
		e.ran(ctx, t, id, end, time.Since(began))
	}
	if errors.Is(err, fault) {
		return failed // giveUp has notified whoever waits
	}
	return errors.Join(err, failed)
}

// ran counts a run, and logs it. Tasks whose queries are quick have many runs a second, which would bury everything else.
func (e *Engine) ran(ctx context.Context, t taskView, run int64, end RunEnd, took time.Duration) {
	e.countRun(t.task, end, took)
	level := slog.LevelDebug
	if took >= time.Second {
		level = slog.LevelInfo
	}
	facts := []any{"task", t.Name, "run", run, "end", string(end), "seconds", took.Seconds()}
	if is := e.Trace.RunTrace(run); is != "" {
		facts = append(facts, "trace", is)
	}
	e.Log.Log(ctx, level, "run", facts...)
}

// No row means that somebody has called the run lost, so its result must not be used.
const finishRun = `
update getwork.run u
set state = 'finished', finished_at = clock_timestamp(), snapshot = $2::text::pg_snapshot, seen_until = $3,
    given = $4, blocked = $5, passed_over = $6, candidates = $7, cut = $8, left_out = $9, oldest = $10, needs = $11::jsonb
where id = $1 and state = 'running'
returning ` + records.RankedAt

// stopped reports whether a manager stopped the run. Its result, or its error, then concerns nobody.
func (r *round) stopped(t taskView) bool {
	s := &r.state
	return s.Paused || s.deleted || s.Query != t.Query || s.Recheck != t.Recheck || s.MaxCandidates != t.MaxCandidates || s.Slots != t.Slots
}

// handOut is the run's own round. What takes long comes first: the result is copied to the shelf, and only then the assign lock is
// taken. Nothing of the result exists before the commit. errStopped: a manager stopped the run.
func (e *Engine) handOut(ctx context.Context, tx pgx.Tx, t taskView, o *runResult) error {
	run, found := o.run, o.Result
	if t.FreshFor > 0 {
		if _, err := tx.Exec(ctx, pg.OwnPlans); err != nil { // on the connection that ran a user's query
			return fmt.Errorf("begin to put up the shelf: %w", err)
		}
		if err := o.shelve(ctx, e, tx, t.task); err != nil {
			return err
		}
	}
	r, err := e.roundUnderLock(ctx, tx, t.task)
	if err != nil {
		return err
	}
	if r.stopped(t) {
		return errStopped
	}
	if t.FreshFor > 0 {
		o.freshFor = r.state.FreshFor
	}
	r.run = run
	err = tx.QueryRow(ctx, e.SQL(finishRun), run, found.Snapshot, found.SeenUntil,
		found.Given, found.Blocked, found.PassedOver, len(found.Items), found.Cut, found.LeftOut, found.Oldest, classes(found.Needs).json()).Scan(&o.ranked)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("finish run %d: %w", run, errCalledLost)
	}
	if err != nil {
		return fmt.Errorf("finish the run: %w", err)
	}
	if err := r.serve(ctx, o); err != nil {
		return err
	}
	return e.commit(ctx, r, run)
}

// rank executes the query, and meanwhile watches whether it is still wanted.
func (e *Engine) rank(ctx context.Context, tx pgx.Tx, t taskView, run int64) (ranking.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		e.watch(ctx, t, run, cancel)
	}()
	defer func() {
		cancel(nil)
		<-watching
	}()
	return e.Ranker.Rank(ctx, tx, t.task, t.Settings)
}

const stillWanted = `
select s.paused or s.deleted_at is not null or v.query <> $2 or coalesce(v.recheck, '') <> $3 or v.max_candidates <> $4 or v.slots <> $5,
  (select r.id from getwork.work_requested r where r.task_id between s.task_id and s.task_id and r.state = 'pending' order by r.task_id, r.id limit 1) is not null
    or exists (select from getwork.work_requested r where r.task_id = 0 and r.state = 'pending' and r.todo[1] = s.task_id)
    or coalesce(s.used_at > clock_timestamp() - v.fresh_for, false) or ` + servedStale + `,
  exists (select from getwork.run u where u.id = $6 and u.state = 'lost')
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.task_id = $1`

// watch ends the run when no request waits any more, unless the task is in use and keeps a shelf. It also ends a run that a
// manager stopped: at once when this node hears of it, otherwise within two seconds. After a freeze the run may be lost, and its
// requests served by the next: it then ends as lost, not as cancelled because nobody waits.
func (e *Engine) watch(ctx context.Context, t taskView, run int64, cancel context.CancelCauseFunc) {
	pokes := e.pokes(t.task)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-pokes:
		}
		var stopped, wanted, lost bool
		err := e.DB.QueryRow(ctx, e.SQL(stillWanted), t.task, string(t.Query), string(t.Recheck), t.MaxCandidates, t.Slots, run).Scan(&stopped, &wanted, &lost)
		switch {
		case err != nil: // the database is away, or the run was cancelled; the query returns an error by itself
		case lost:
			cancel(errCalledLost)
		case stopped:
			cancel(errStopped)
		case !wanted:
			cancel(errNobodyWaits)
		}
		select { // at most one check per pause, however many clicks are announced
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

const failRun = `update getwork.run set state = 'failed', finished_at = clock_timestamp(), error = $2 where id = $1 and state = 'running'`

// failRequests is the round of a run whose query failed by its own fault.
func (e *Engine) failRequests(ctx context.Context, tx pgx.Tx, t taskView, run int64, message string) error {
	r, err := e.roundUnderLock(ctx, tx, t.task)
	if err != nil {
		return err
	}
	if r.stopped(t) {
		return errStopped
	}
	var wrote pg.Writes
	wrote.Queue(1, e.SQL(failRun), run, message)
	if err := r.fail(ctx, &wrote, run, message); err != nil {
		return err
	}
	return e.commit(ctx, r, run)
}

const (
	// 1 s, doubling to 60 s. A shelf whose refresh has failed is not handed out after it has expired.
	backOff = `
update getwork.task_state
set failures = failures + 1, failed_until = clock_timestamp() + least(60, 2 ^ least(failures, 6)) * interval '1 second',
    last_error = $2, retries = 0, retry_at = null, retry_since = null, expires_at = null
where task_id = $1`

	failPending = `
update getwork.work_requested r
set state = 'failed', requested = 0, reason = null, error = $3, completed_at = clock_timestamp(), round_id = $4, run_id = nullif($5, 0)
where r.id = any($1::bigint[]) and r.task_id = $2 and r.state = 'pending'`

	lingerUntilBackOff = `
update getwork.work_requested r
set look_after = least(s.failed_until, r.linger_until)
from getwork.task_state s
where r.id = any($1::bigint[]) and s.task_id = r.task_id and r.state = 'pending'`
)

// fail ends requests after a run's query, or a recheck (run is 0), failed by its own fault. Lingering requests, and new
// clicks that linger, wait for the end of the back-off. wrote is written with it.
func (r *round) fail(ctx context.Context, wrote *pg.Writes, run int64, message string) error {
	r.run = run
	if err := r.readMust(ctx); err != nil {
		return err
	}
	var failed, lingering []int64
	var passing passing
	r.answered, r.ends = nil, map[assign.State]int{}
	for i := range r.waiting {
		w := &r.waiting[i]
		if r.fails(&passing, w) {
			continue
		}
		if w.lingers {
			lingering = append(lingering, w.id)
		} else {
			failed = append(failed, w.id)
			r.ended(w, assign.Failed)
		}
	}
	e := r.e
	wrote.Queue(1, e.SQL(backOff), r.task, message)
	wrote.Queue(len(failed), e.SQL(failPending), failed, r.task, message, r.id, run)
	wrote.Queue(len(lingering), e.SQL(lingerUntilBackOff), lingering)
	passing.write(wrote, r, run, message)
	if err := wrote.Send(ctx, r.tx); err != nil {
		return err
	}
	r.announced = true
	e.Log.Warn("ranking query or recheck failed", "task", r.state.Name, "run", run, "error", message, "requests", len(failed))
	return r.announce(ctx, run)
}

const (
	// While the run lock is held: the next run would call this one lost, and web hooks would report that it failed.
	cancelRun = `update getwork.run set state = 'cancelled', finished_at = clock_timestamp(), error = $2 where id = $1 and state = 'running'`

	// The run lock is free by now. The next run, or a rescuer, may have taken this run's node for dead and called the run lost. If this
	// node has given the lock back itself ($4), it knows better, and writes the true end. But the time stays at which the run was
	// called lost: with a later one it would overlap the next run.
	endGivenUp = `
update getwork.run u
set state = $2, finished_at = coalesce(u.finished_at, clock_timestamp()), error = $3
from (select id, task_id, state from getwork.run where id = $1 and (state = 'running' or $4 and state in ('cancelled', 'lost')) for no key update) was
where u.id = was.id
returning was.state = 'lost', exists (select from getwork.run n where n.task_id = was.task_id and n.id > was.id)`
)

// giveUp ends a run that could not be finished, in a new transaction because the lock's may be gone. A cancelled run leaves
// only its row, and so does one whose task was paused or changed meanwhile, whatever broke: requests stay during a pause. If the
// lock's connection was closed for a fault of the query's own, the requests fail at once. After any other fault the run is repeated a
// little later, and its requests fail only if that goes on for too long. If the database is away, giveUp fails, too, and a later
// attempt begins again. It returns how the run counts; lost: another node has called it so, and counted it. If another run has begun
// meanwhile, the end of this one is not announced: who watches would take it for the end of that one.
func (e *Engine) giveUp(ctx context.Context, lock pgx.Tx, t taskView, run int64, cause error) (end RunEnd, err error) {
	cancelled := errors.Is(cause, errNobodyWaits) || errors.Is(cause, errStopped) || errors.Is(cause, context.Canceled)
	if cancelled {
		soon, done := context.WithTimeout(ctx, 2*time.Second) // through a pooler, runs that end may hold all connections
		_, _ = e.write(soon, cancelRun, run, pg.Brief(cause.Error()))
		done() // if it fails, the run may be called lost for a moment
	}
	released := lock.Rollback(ctx) == nil // or the connection is gone, and the run lock with it: others rightly call the run lost
	var r *round
	over := []notify.Change{{Task: t.task, Runs: []int64{run}}}
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
		if r, err = e.openRound(ctx, tx, t.task); err != nil {
			return nil, err
		}
		cause, stopped := cause, cancelled
		if !cancelled && r.stopped(t) {
			cause, stopped = errStopped, true
		}
		if end = RunFailed; stopped {
			end = RunCancelled
		}
		var lost, next bool // others have called it lost; another run has begun
		err = tx.QueryRow(ctx, e.SQL(endGivenUp), run, string(end), pg.Brief(cause.Error()), released || cancelled).Scan(&lost, &next)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("give up the run: %w", err)
		}
		gone := err != nil // it stays lost
		if lost || gone {
			end = RunLost
		}
		switch {
		case next, gone:
			return nil, nil // another node serves the task
		case stopped:
			return over, nil
		}
		var fault *ranking.ErrQuery
		if errors.As(cause, &fault) {
			return over, r.fail(ctx, &pg.Writes{}, run, fault.Message)
		}
		return over, r.retry(ctx, t.QueryTimeout, run, cause)
	})
	if err == nil {
		e.countEnded(r)
		e.traceAnswered(r)
		e.wakeNext(r)
	}
	return end, err
}

const retryLater = `
update getwork.task_state
set retries = $2::integer,
    retry_since = case when $2 = 1 then clock_timestamp() else retry_since end,
    retry_at = clock_timestamp() + least(30, 2 ^ least($2 - 1, 5)) * interval '1 second', expires_at = null
where task_id = $1`

// retry delays the next run after a fault that is not the query's own. It fails the requests if that goes on for too long, or
// if the query of another database returned text that this one can't store, because it would do so again. run is 0 if no run
// was begun.
func (r *round) retry(ctx context.Context, timeout assign.Duration, run int64, cause error) error {
	if pg.Unheld(cause) {
		return r.failRetried(ctx, run, fmt.Sprintf("the query returns text that getwork's database can't store, because its encoding is not UTF-8: %s", pg.Brief(cause.Error())))
	}
	if r.state.retries > 0 && r.state.retrying > time.Duration(timeout)+time.Minute {
		return r.failRetried(ctx, run, fmt.Sprintf("the query could not be brought to an end for %s: %s", r.state.retrying.Round(time.Second), pg.Brief(cause.Error())))
	}
	if _, err := r.tx.Exec(ctx, r.e.SQL(retryLater), r.task, r.state.retries+1); err != nil {
		return fmt.Errorf("delay the next run: %w", err)
	}
	return nil
}

// failRetried ends the requests of a task whose run can't be completed.
func (r *round) failRetried(ctx context.Context, run int64, message string) error {
	r.run = run
	if err := r.readMust(ctx); err != nil {
		return err
	}
	var failed []int64
	var passing passing
	var wrote pg.Writes
	r.answered, r.ends = nil, map[assign.State]int{}
	for i := range r.waiting {
		if w := &r.waiting[i]; !r.fails(&passing, w) && !w.lingers {
			failed = append(failed, w.id)
			r.ended(w, assign.Failed)
		}
	}
	wrote.Queue(1, r.e.SQL(backOff), r.task, message)
	wrote.Queue(len(failed), r.e.SQL(failPending), failed, r.task, message, r.id, run)
	passing.write(&wrote, r, run, message)
	if err := wrote.Send(ctx, r.tx); err != nil {
		return err
	}
	return r.announce(ctx, run)
}
