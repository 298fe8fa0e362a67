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

	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/assign/tracing"
	"getwork/notify"
)

// These errors say why a run was given up before its query ended.
var (
	errNobodyWaits = errors.New("nobody waits any more")
	errStopped     = errors.New("the task was paused, changed or deleted")
	errCalledLost  = errors.New("another node has called the run lost")
)

const (
	closeOrphans = `update getwork.run set state = 'lost', finished_at = clock_timestamp() where task_id = $1 and state = 'running'`
	insertRun    = `insert into getwork.run (task_id, version, node, backend, ahead) values ($1, $2, $3, $4, $5)
returning id, coalesce((select max(w.id) from getwork.work w), 0)`
)

// runner runs a task's query under the run lock, and deals with the result.
type runner struct{ *Engine }

// beginRun writes the run row in a transaction of its own, so that others see it while the query runs. The holder of the run
// lock knows that no other run of the task is alive, so it ends any run that is still marked as running. since is the highest id
// of all committed work, of any task; 0: there is none.
func (rn runner) beginRun(ctx context.Context, t taskView) (id, since int64, err error) {
	var lost int64
	var waiting tracing.Waiting
	err = rn.transactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		tag, err := tx.Exec(ctx, rn.SQL(closeOrphans), t.task)
		if err != nil {
			return nil, err
		}
		lost = tag.RowsAffected()
		err = tx.QueryRow(ctx, rn.SQL(insertRun), t.task, t.version, rn.Node, t.backend, !t.view.Waits).Scan(&id, &since)
		if err == nil {
			waiting, err = rn.Trace.Waiting(ctx, tx, t.task)
		}
		return []notify.Change{{Task: t.task, Runs: []int64{id}}}, err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("record the run: %w", err)
	}
	rn.RunEnds[RunLost].n.Add(lost)
	rn.Trace.RunBegan(id, t.Name, waiting)
	return id, since, nil
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

// run executes the query for the waiting requests and hands out its result, all under the run lock that tx holds. It commits,
// or leaves tx to be rolled back. A nil error means that the task was moved on, so the caller must look again. begun is called when
// the run is recorded; see starting.
func (rn runner) run(ctx context.Context, tx pgx.Tx, t taskView, begun func()) error {
	id, since, err := rn.beginRun(ctx, t)
	begun()
	if err != nil {
		return err
	}
	rn.Steps(ctx, StepRunBegins)
	began := time.Now()
	found, err := rn.rank(ctx, tx, t, id)
	rn.Steps(ctx, StepQueried)

	after, cancel := pg.Detached(ctx)
	defer cancel()
	var fault *ranking.ErrQuery
	end := RunFinished
	defer func() { rn.Trace.RunEnded(id, cmp.Or(string(end), "unknown")) }()
	switch {
	case err == nil:
		err = rn.handOut(after, tx, t, &runResult{Result: found, run: id, since: since})
	case errors.As(err, &fault):
		end, err = RunFailed, fault
		if !tx.Conn().IsClosed() { // or the run lock is gone with it, and giveUp fails the requests
			err = rn.failRequests(after, tx, t, id, fault.Message)
		}
	}
	if err == nil {
		rn.ran(ctx, t, id, end, time.Since(began))
		return nil
	}
	ending, done := pg.Detached(ctx) // after may have expired
	defer done()
	end, failed := rn.giveUp(ending, tx, t, id, err)
	if failed == nil && end != RunLost {
		rn.ran(ctx, t, id, end, time.Since(began))
	}
	if errors.Is(err, fault) {
		return failed // giveUp has told whoever waits
	}
	return errors.Join(err, failed)
}

// ran counts a run, and logs it. Tasks whose queries are quick have many runs a second, which would bury everything else.
func (rn runner) ran(ctx context.Context, t taskView, run int64, end RunEnd, took time.Duration) {
	rn.countRun(t.task, end, took)
	level := slog.LevelDebug
	if took >= time.Second {
		level = slog.LevelInfo
	}
	facts := []any{"task", t.Name, "run", run, "end", string(end), "seconds", took.Seconds()}
	if is := rn.Trace.RunTrace(run); is != "" {
		facts = append(facts, "trace", is)
	}
	rn.Log.Log(ctx, level, "run", facts...)
}

// rankedAt is what a request is told of a run: everything that was committed before was seen by the query. A replica may have
// been some time behind.
const rankedAt = `least(u.started_at, u.seen_until)`

// No row means that somebody has called the run lost, so its result must not be used.
const finishRun = `
update getwork.run u
set state = 'finished', finished_at = clock_timestamp(), snapshot = $2::text::pg_snapshot, seen_until = $3,
    given = $4, blocked = $5, passed_over = $6, candidates = $7, cut = $8
where id = $1 and state = 'running'
returning ` + rankedAt

// stopped reports whether a manager stopped the run. Its result, or its error, then concerns nobody.
func (r *round) stopped(t taskView) bool {
	s := &r.state
	return s.Paused || s.deleted || s.Query != t.Query || s.Recheck != t.Recheck || s.MaxCandidates != t.MaxCandidates || s.Slots != t.Slots
}

// handOut is the run's own round. What takes long comes first: the result is copied to the shelf, and only then the assign lock is
// taken. Nothing of the result exists before the commit. errStopped: a manager stopped the run.
func (rn runner) handOut(ctx context.Context, tx pgx.Tx, t taskView, o *runResult) error {
	run, found := o.run, o.Result
	if t.FreshFor > 0 {
		if _, err := tx.Exec(ctx, pg.OwnPlans); err != nil { // on the connection that ran a user's query
			return fmt.Errorf("begin to put up the shelf: %w", err)
		}
		if err := o.shelve(ctx, rn.Engine, tx, t.task); err != nil {
			return err
		}
	}
	r, err := locker(rn).roundUnderLock(ctx, tx, t.task)
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
	err = tx.QueryRow(ctx, rn.SQL(finishRun), run, found.Snapshot, found.SeenUntil,
		found.Given, found.Blocked, found.PassedOver, len(found.Items), found.Cut).Scan(&o.ranked)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("finish run %d: %w", run, errCalledLost)
	}
	if err != nil {
		return fmt.Errorf("finish the run: %w", err)
	}
	if err := r.serve(ctx, o); err != nil {
		return err
	}
	return rn.commit(ctx, r, run)
}

// tellEvery is the least time between two rounds of a task that announce at once what only the clickers' other sockets need.
// The announcer announces the rest. Under load there are hundreds of rounds a second, and each NOTIFY wakes every node.
const tellEvery = 10 * time.Millisecond

const (
	failRun = `update getwork.run set state = 'failed', finished_at = clock_timestamp(), error = $2 where id = $1 and state = 'running'`

	// The run lock is free by now, so the next run, or a rescuer, may have called this one lost, as it would a run whose node has died. The
	// time at which it did so stays, or the two runs would seem to have been under way at once. $4: the node has given the lock back
	// itself, so that it knows better.
	endGivenUp = `
update getwork.run u
set state = $2, finished_at = coalesce(u.finished_at, clock_timestamp()), error = $3
from (select id, task_id, state from getwork.run where id = $1 and (state = 'running' or $4 and state = 'lost') for no key update) was
where u.id = was.id
returning was.state = 'lost', exists (select from getwork.run n where n.task_id = was.task_id and n.id > was.id)`

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

const retryLater = `
update getwork.task_state
set retries = $2::integer,
    retry_since = case when $2 = 1 then clock_timestamp() else retry_since end,
    retry_at = clock_timestamp() + least(30, 2 ^ least($2 - 1, 5)) * interval '1 second', expires_at = null
where task_id = $1`

// rank executes the query, and meanwhile watches whether it is still wanted.
func (rn runner) rank(ctx context.Context, tx pgx.Tx, t taskView, run int64) (ranking.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		rn.watch(ctx, t, run, cancel)
	}()
	defer func() {
		cancel(nil)
		<-watching
	}()
	return rn.Ranker.Rank(ctx, tx, t.task, t.Settings)
}

const stillWanted = `
select s.paused or s.deleted_at is not null or v.query <> $2 or coalesce(v.recheck, '') <> $3 or v.max_candidates <> $4 or v.slots <> $5,
  exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending')
    or coalesce(s.used_at > clock_timestamp() - v.fresh_for, false) or ` + servedStale + `,
  exists (select from getwork.run u where u.id = $6 and u.state = 'lost')
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.task_id = $1`

// watch ends the run when no request waits any more, unless the task is in use and keeps a shelf. It also ends a run that a
// manager stopped: at once when this node hears of it, otherwise within two seconds. After a freeze the run may be lost, and its
// requests served by the next: it then ends as lost, not as cancelled because nobody waits.
func (rn runner) watch(ctx context.Context, t taskView, run int64, cancel context.CancelCauseFunc) {
	pokes := rn.pokes(t.task)
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
		err := rn.api.QueryRow(ctx, rn.SQL(stillWanted), t.task, string(t.Query), string(t.Recheck), t.MaxCandidates, t.Slots, run).Scan(&stopped, &wanted, &lost)
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
