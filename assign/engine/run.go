package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/notify"
)

// Why a run was given up before its query ended.
var (
	errNobodyWaits = errors.New("nobody waits any more")
	errStopped     = errors.New("the task was paused, changed or deleted")
)

const (
	closeOrphans = `update getwork.run set state = 'lost', finished_at = clock_timestamp() where task_id = $1 and state = 'running'`
	insertRun    = `insert into getwork.run (task_id, version, node, backend) values ($1, $2, $3, $4) returning id`
)

// beginRun writes the run row, in a transaction of its own, so that others see it while the query runs. Whoever
// holds the run lock knows that no other run of the task is alive: what is still called running died.
func (e *Engine) beginRun(ctx context.Context, t prospect) (int64, error) {
	var id, lost int64
	err := e.transactTelling(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		tag, err := tx.Exec(ctx, e.SQL(closeOrphans), t.task)
		if err != nil {
			return nil, err
		}
		lost = tag.RowsAffected()
		err = tx.QueryRow(ctx, e.SQL(insertRun), t.task, t.version, e.Node, t.backend).Scan(&id)
		return []notify.Change{{Task: t.task, Runs: []int64{id}}}, err
	})
	if err != nil {
		return 0, fmt.Errorf("record the run: %w", err)
	}
	e.RunEnds[RunLost].n.Add(lost)
	return id, nil
}

// starting lets one attempt at a time go on, until begun is called, where all of the node's pools share a pooler's few
// connections: a run that begins holds one, with the run lock, and waits for another to be recorded by. Were all of them held
// so, everybody would wait for everybody. What remains for that are as many nodes as the pooler has connections.
func (e *Engine) starting() (begun func()) {
	if !e.Pooled {
		return func() {}
	}
	e.starts.Lock()
	return sync.OnceFunc(e.starts.Unlock)
}

// run executes the query for those who wait and hands out its result, all under the run lock that tx holds.
// It commits or leaves tx to be rolled back. A nil error means that the task was moved on: look again.
func (e *Engine) run(ctx context.Context, tx pgx.Tx, t prospect, begun func()) error {
	id, err := e.beginRun(ctx, t)
	begun()
	if err != nil {
		return err
	}
	e.Steps(ctx, StepRunBegins)
	began := time.Now()
	found, err := e.rank(ctx, tx, t)
	e.Steps(ctx, StepQueried)

	after, cancel := pg.Detached(ctx)
	defer cancel()
	var fault *ranking.ErrQuery
	end := RunFinished
	switch {
	case err == nil:
		err = e.handOut(after, tx, t, id, found)
	case errors.As(err, &fault):
		end = RunFailed
		err = e.failRequests(after, tx, t, id, fault.Message)
	}
	if err == nil {
		e.countRun(end, time.Since(began))
		return nil
	}
	ending, done := pg.Detached(ctx) // the other may be used up
	defer done()
	end, failed := e.giveUp(ending, tx, t, id, err)
	if failed == nil && end != RunLost {
		e.countRun(end, time.Since(began))
	}
	return errors.Join(err, failed)
}

// Rank executes the query, and watches meanwhile that somebody still wants it.
func (e *Engine) rank(ctx context.Context, tx pgx.Tx, t prospect) (ranking.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		e.watch(ctx, t, cancel)
	}()
	defer func() {
		cancel(nil)
		<-watching
	}()
	return e.Ranker.Rank(ctx, tx, t.task, t.Settings)
}

const stillWanted = `
select s.paused or s.deleted_at is not null or v.query <> $2 or coalesce(v.recheck, '') <> $3 or v.max_candidates <> $4 or v.slots <> $5,
  exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending')
    or coalesce(s.used_at > clock_timestamp() - v.fresh_for, false)
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.task_id = $1`

// watch ends the run when nobody waits any more, unless the task is used and keeps a shelf, or when a manager stopped it:
// at once when this node hears of it, or within two seconds.
func (e *Engine) watch(ctx context.Context, t prospect, cancel context.CancelCauseFunc) {
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
		var stopped, wanted bool
		err := e.api.QueryRow(ctx, e.SQL(stillWanted), t.task, string(t.Query), string(t.Recheck), t.MaxCandidates, t.Slots).Scan(&stopped, &wanted)
		switch {
		case err != nil: // the database is away, or we were told to stop; the query will tell
		case stopped:
			cancel(errStopped)
		case !wanted:
			cancel(errNobodyWaits)
		}
		select { // however many clicks are announced
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

const finishRun = `
update getwork.run
set state = 'finished', finished_at = clock_timestamp(), snapshot = $2::text::pg_snapshot, seen_until = $3,
    given = $4, blocked = $5, passed_over = $6, candidates = $7, cut = $8
where id = $1 and state = 'running'`

// stopped reports whether a manager stopped the run: what came of it, be it an error, concerns nobody.
func (r *round) stopped(t prospect) bool {
	s := &r.state
	return s.Paused || s.deleted || s.Query != t.Query || s.Recheck != t.Recheck || s.MaxCandidates != t.MaxCandidates || s.Slots != t.Slots
}

// handOut is the run's own round.
func (e *Engine) handOut(ctx context.Context, tx pgx.Tx, t prospect, run int64, found ranking.Result) error {
	o := &outcome{Result: found, run: run}
	if t.FreshFor > 0 {
		if err := o.store(ctx, e, tx); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, pg.OwnPlans); err != nil { // on the connection that ran somebody's query
		return fmt.Errorf("begin the round: %w", err)
	}
	r, err := e.openRound(ctx, tx, t.task)
	if err != nil {
		return err
	}
	if r.stopped(t) {
		return errStopped
	}
	if back, err := found.WasSetBack(ctx, tx); err != nil || back {
		return cmp.Or(err, ranking.ErrSetBack)
	}
	if t.FreshFor > 0 {
		o.freshFor = r.state.FreshFor
	}
	r.run = run
	tag, err := tx.Exec(ctx, e.SQL(finishRun), run, found.Snapshot, found.SeenUntil,
		found.Given, found.Blocked, found.PassedOver, len(found.Items), found.Cut)
	if err != nil {
		return fmt.Errorf("finish the run: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("finish the run: another node has taken run %d for dead", run)
	}
	if err := r.serve(ctx, o); err != nil {
		return err
	}
	return e.commit(ctx, r, run)
}

// commit announces the round, if that is not done, and commits it.
func (e *Engine) commit(ctx context.Context, r *round, run int64) error {
	if !r.told {
		if err := r.announce(ctx, run); err != nil {
			return err
		}
	}
	e.Steps(ctx, StepWritten)
	if err := r.tx.Commit(ctx); err != nil {
		r.telling.End(false)
		return fmt.Errorf("commit the round: %w", err)
	}
	e.after(r)
	e.Steps(ctx, StepCommitted)
	return nil
}

// tellEvery is the least time between two rounds of a task that tell at once what only those need to hear who have other
// sockets: the announcer tells of the others. Under load there are hundreds of rounds in a second, and each NOTIFY wakes
// every node.
const tellEvery = 10 * time.Millisecond

// tellsAtOnce reports whether a round that answers nobody but who clicked is to tell of it itself.
func (e *Engine) tellsAtOnce(task int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if now.Sub(e.told[task]) < tellEvery {
		return false
	}
	e.told[task] = now
	return true
}

// after follows a round's commit. Who was left lingering by it could not be seen by those who pushed or let go of
// something while the round was under way: to them nobody lingered. The shelf of a run was not there to them either.
func (e *Engine) after(r *round) {
	e.countRound(r)
	r.telling.End(true)
	if r.leased {
		e.leased()
	}
	if r.stirs {
		e.Stir(r.task)
	}
	e.keepFresh(r)
}

const (
	failRun = `update getwork.run set state = $2, finished_at = clock_timestamp(), error = $3 where id = $1 and state = 'running'`

	// 1 s, doubling to 60 s.
	backOff = `
update getwork.task_state
set failures = failures + 1, failed_until = clock_timestamp() + least(60, 2 ^ least(failures, 6)) * interval '1 second',
    last_error = $2, retries = 0, retry_at = null, retry_since = null
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

// failRequests is the round of a run whose query failed by its own fault.
func (e *Engine) failRequests(ctx context.Context, tx pgx.Tx, t prospect, run int64, message string) error {
	r, err := e.openRound(ctx, tx, t.task)
	if err != nil {
		return err
	}
	if r.stopped(t) {
		return errStopped
	}
	if err := r.fail(ctx, run, message); err != nil {
		return err
	}
	return e.commit(ctx, r, run)
}

// fail ends requests after a run's query, or a recheck (run is 0), failed by its own fault: who waits is told so, who
// lingers waits for the end of the back-off, and so do new clicks that linger.
func (r *round) fail(ctx context.Context, run int64, message string) error {
	if err := r.readWaiting(ctx); err != nil {
		return err
	}
	var failed, lingering []int64
	for _, w := range r.waiting {
		if w.lingers {
			lingering = append(lingering, w.id)
		} else {
			failed = append(failed, w.id)
		}
	}
	e := r.e
	wrote := expecting{batch: &pgx.Batch{}}
	if run != 0 {
		wrote.queue(1, e.SQL(failRun), run, "failed", message)
	}
	wrote.queue(1, e.SQL(backOff), r.task, message)
	wrote.queue(len(failed), e.SQL(failPending), failed, r.task, message, r.id, run)
	wrote.queue(len(lingering), e.SQL(lingerUntilBackOff), lingering)
	if err := wrote.send(ctx, r.tx); err != nil {
		return err
	}
	r.answered, r.told, r.ends = failed, true, map[assign.State]int{assign.Failed: len(failed)}
	e.Log.Warn("ranking query or recheck failed", "task", r.state.Name, "run", run, "error", message, "requests", len(failed))
	return r.announce(ctx, run)
}

const retryLater = `
update getwork.task_state
set retries = $2::integer,
    retry_since = case when $2 = 1 then clock_timestamp() else retry_since end,
    retry_at = clock_timestamp() + least(30, 2 ^ least($2 - 1, 5)) * interval '1 second'
where task_id = $1`

// giveUp ends a run that could not be finished, in a new transaction since the lock's may be gone: one that was
// cancelled leaves no trace but its row; after the world's fault the run is repeated a little later, and its
// requests fail only if that goes on for too long. If the database is away this fails too, and whoever looks when
// it is back begins again. It returns what the run ended as; lost: another node had taken it for dead.
func (e *Engine) giveUp(ctx context.Context, lock pgx.Tx, t prospect, run int64, cause error) (end RunEnd, err error) {
	_ = lock.Rollback(ctx) // lets go of the run lock; if that fails, the connection is gone, and the lock with it
	cancelled := errors.Is(cause, errNobodyWaits) || errors.Is(cause, errStopped) || errors.Is(cause, context.Canceled)
	var r *round
	over := []notify.Change{{Task: t.task, Runs: []int64{run}}}
	err = e.transactTelling(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
		if r, err = e.openRound(ctx, tx, t.task); err != nil {
			return nil, err
		}
		if cancelled {
			end = RunCancelled
			if _, err := tx.Exec(ctx, e.SQL(failRun), run, "cancelled", cause.Error()); err != nil {
				return nil, fmt.Errorf("give up the run: %w", err)
			}
			return over, nil
		}
		tag, err := tx.Exec(ctx, e.SQL(failRun), run, "failed", cause.Error())
		if err != nil {
			return nil, fmt.Errorf("give up the run: %w", err)
		}
		if end = RunFailed; tag.RowsAffected() == 0 {
			end = RunLost // others see to the task
			return nil, nil
		}
		return over, r.retry(ctx, t.QueryTimeout, run, cause)
	})
	if err == nil {
		e.countEnded(r)
	}
	return end, err
}

// retry puts off the next try after the world's fault, or fails the requests if that goes on for too long, or if a query of
// another database gives what this one can't hold, which it will again. run is 0 where none was to be made.
func (r *round) retry(ctx context.Context, timeout assign.Duration, run int64, cause error) error {
	if pg.Unheld(cause) {
		return r.e.failRetried(ctx, r, run, fmt.Sprintf("the query gives text that getwork's database, whose encoding is not UTF-8, can't hold: %v", cause))
	}
	if r.state.retries > 0 && r.state.retrying > time.Duration(timeout)+time.Minute {
		return r.e.failRetried(ctx, r, run, fmt.Sprintf("the query could not be brought to an end for %s: %v", r.state.retrying.Round(time.Second), cause))
	}
	if _, err := r.tx.Exec(ctx, r.e.SQL(retryLater), r.task, r.state.retries+1); err != nil {
		return fmt.Errorf("put off the next try: %w", err)
	}
	return nil
}

// failRetried ends the requests of a task whose run can't be brought to an end.
func (e *Engine) failRetried(ctx context.Context, r *round, run int64, message string) error {
	if err := r.readWaiting(ctx); err != nil {
		return err
	}
	var failed []int64
	for _, w := range r.waiting {
		if !w.lingers {
			failed = append(failed, w.id)
		}
	}
	wrote := expecting{batch: &pgx.Batch{}}
	wrote.queue(1, r.e.SQL(backOff), r.task, message)
	wrote.queue(len(failed), r.e.SQL(failPending), failed, r.task, message, r.id, run)
	if err := wrote.send(ctx, r.tx); err != nil {
		return err
	}
	r.answered, r.ends = failed, map[assign.State]int{assign.Failed: len(failed)}
	return r.announce(ctx, run)
}
