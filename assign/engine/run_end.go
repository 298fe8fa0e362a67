package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/notify"
)

// commit announces the round, unless that is done, and commits it. run is the run that the round ends; 0: none. If the connection
// is lost during the commit, nobody knows whether the round counts: the serve loop reads it from the tables.
func (e *Engine) commit(ctx context.Context, r *round, run int64) error {
	if !r.announced {
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

// announcement returns the round's one NOTIFY.
func (r *round) announcement(run int64) notify.Message {
	return notify.Message{Node: r.e.Node, Round: &notify.Round{Task: r.task, ID: r.id, Run: run, Requests: len(r.answered)}}
}

// announce sends the announcement of a round that was not written by a plan.
func (r *round) announce(ctx context.Context, run int64) error {
	if _, err := r.tx.Exec(ctx, notify.NotifySQL, r.e.Channel, r.announcement(run).Encode()); err != nil {
		return fmt.Errorf("announce the round: %w", err)
	}
	return nil
}

// announcesAtOnce reports whether a round that answers only the clicks that started it announces itself.
func (e *Engine) announcesAtOnce(task int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if now.Sub(e.lastNotify[task]) < tellEvery {
		return false
	}
	e.lastNotify[task] = now
	return true
}

// after follows a round's commit. Requests that the round left lingering did not count as lingering before. A transaction
// that pushed or closed something meanwhile could not see them, nor the shelf of a run. So the task is woken for what became
// free.
func (e *Engine) after(r *round) {
	e.countRound(r)
	e.traceAnswered(r)
	r.telling.End(true)
	if r.brief {
		e.wakeSweep()
	}
	if r.freed {
		e.WakeLingering(r.task)
	}
	refresher{e}.keepFresh(r)
}

// traceAnswered makes spans for the requests that a transaction has ended, after its commit, if tracing is on.
func (e *Engine) traceAnswered(r *round) { e.Trace.Answered(r.id, r.run, r.began, r.answered) }

// failRequests is the round of a run whose query failed by its own fault.
func (rn runner) failRequests(ctx context.Context, tx pgx.Tx, t taskView, run int64, message string) error {
	r, err := locker(rn).roundUnderLock(ctx, tx, t.task)
	if err != nil {
		return err
	}
	if r.stopped(t) {
		return errStopped
	}
	var wrote pg.Writes
	wrote.Queue(1, rn.SQL(failRun), run, message)
	if err := r.fail(ctx, &wrote, run, message); err != nil {
		return err
	}
	return rn.commit(ctx, r, run)
}

// fail ends requests after a run's query, or a recheck (run is 0), failed by its own fault. Lingering requests, and new
// clicks that linger, wait for the end of the back-off. wrote is written with it.
func (r *round) fail(ctx context.Context, wrote *pg.Writes, run int64, message string) error {
	r.run = run
	if err := r.readWaiting(ctx); err != nil {
		return err
	}
	var failed, lingering []int64
	for _, w := range r.waiting {
		if w.lingers {
			lingering = append(lingering, w.id)
		} else {
			failed = append(failed, w.id)
			r.waits = append(r.waits, w.waited)
		}
	}
	e := r.e
	wrote.Queue(1, e.SQL(backOff), r.task, message)
	wrote.Queue(len(failed), e.SQL(failPending), failed, r.task, message, r.id, run)
	wrote.Queue(len(lingering), e.SQL(lingerUntilBackOff), lingering)
	if err := wrote.Send(ctx, r.tx); err != nil {
		return err
	}
	r.answered, r.announced, r.ends = failed, true, map[assign.State]int{assign.Failed: len(failed)}
	e.Log.Warn("ranking query or recheck failed", "task", r.state.Name, "run", run, "error", message, "requests", len(failed))
	return r.announce(ctx, run)
}

// giveUp ends a run that could not be finished, in a new transaction because the lock's may be gone. A cancelled run leaves
// only its row, and so does one whose task was paused or changed meanwhile, whatever broke: requests stay during a pause. If the
// lock's connection was closed for a fault of the query's own, the requests fail at once. After any other fault the run is repeated a
// little later, and its requests fail only if that goes on for too long. If the database is away, giveUp fails, too, and a later
// attempt begins again. It returns how the run counts; lost: another node has called it so, and counted it. If another run has begun
// meanwhile, the end of this one is not announced: who watches would take it for the end of that one.
func (rn runner) giveUp(ctx context.Context, lock pgx.Tx, t taskView, run int64, cause error) (end RunEnd, err error) {
	released := lock.Rollback(ctx) == nil // or the connection is gone, and the run lock with it: others rightly call the run lost
	cancelled := errors.Is(cause, errNobodyWaits) || errors.Is(cause, errStopped) || errors.Is(cause, context.Canceled)
	var r *round
	over := []notify.Change{{Task: t.task, Runs: []int64{run}}}
	err = rn.transactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
		if r, err = rn.openRound(ctx, tx, t.task); err != nil {
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
		err = tx.QueryRow(ctx, rn.SQL(endGivenUp), run, string(end), pg.Brief(cause.Error()), released || cancelled).Scan(&lost, &next)
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
		rn.countEnded(r)
		rn.traceAnswered(r)
	}
	return end, err
}

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
	if err := r.readWaiting(ctx); err != nil {
		return err
	}
	var failed []int64
	for _, w := range r.waiting {
		if !w.lingers {
			failed = append(failed, w.id)
			r.waits = append(r.waits, w.waited)
		}
	}
	var wrote pg.Writes
	wrote.Queue(1, r.e.SQL(backOff), r.task, message)
	wrote.Queue(len(failed), r.e.SQL(failPending), failed, r.task, message, r.id, run)
	if err := wrote.Send(ctx, r.tx); err != nil {
		return err
	}
	r.answered, r.ends = failed, map[assign.State]int{assign.Failed: len(failed)}
	return r.announce(ctx, run)
}
