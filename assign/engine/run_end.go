package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/notify"
)

// commit announces the round, if that is not done, and commits it.
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

// announcesAtOnce reports whether a round that answers nobody but who clicked is to tell of it itself.
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

// after follows a round's commit. Who was left lingering by it could not be seen by those who pushed or let go of
// something while the round was under way: to them nobody lingered. The shelf of a run was not there to them either.
func (e *Engine) after(r *round) {
	e.countRound(r)
	r.telling.End(true)
	if r.leased {
		e.wakeSweep()
	}
	if r.stirs {
		e.WakeLingering(r.task)
	}
	e.keepFresh(r)
}

// failRequests is the round of a run whose query failed by its own fault.
func (rn runner) failRequests(ctx context.Context, tx pgx.Tx, t taskView, run int64, message string) error {
	r, err := rn.openRound(ctx, tx, t.task)
	if err != nil {
		return err
	}
	if r.stopped(t) {
		return errStopped
	}
	if err := r.fail(ctx, run, message); err != nil {
		return err
	}
	return rn.commit(ctx, r, run)
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
	r.answered, r.announced, r.ends = failed, true, map[assign.State]int{assign.Failed: len(failed)}
	e.Log.Warn("ranking query or recheck failed", "task", r.state.Name, "run", run, "error", message, "requests", len(failed))
	return r.announce(ctx, run)
}

// giveUp ends a run that could not be finished, in a new transaction since the lock's may be gone: one that was
// cancelled leaves no trace but its row; after the world's fault the run is repeated a little later, and its
// requests fail only if that goes on for too long. If the database is away this fails too, and whoever looks when
// it is back begins again. It returns what the run ended as; lost: another node had taken it for dead.
func (rn runner) giveUp(ctx context.Context, lock pgx.Tx, t taskView, run int64, cause error) (end RunEnd, err error) {
	_ = lock.Rollback(ctx) // lets go of the run lock; if that fails, the connection is gone, and the lock with it
	cancelled := errors.Is(cause, errNobodyWaits) || errors.Is(cause, errStopped) || errors.Is(cause, context.Canceled)
	var r *round
	over := []notify.Change{{Task: t.task, Runs: []int64{run}}}
	err = rn.transactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
		if r, err = rn.openRound(ctx, tx, t.task); err != nil {
			return nil, err
		}
		if cancelled {
			end = RunCancelled
			if _, err := tx.Exec(ctx, rn.SQL(failRun), run, "cancelled", cause.Error()); err != nil {
				return nil, fmt.Errorf("give up the run: %w", err)
			}
			return over, nil
		}
		tag, err := tx.Exec(ctx, rn.SQL(failRun), run, "failed", cause.Error())
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
		rn.countEnded(r)
	}
	return end, err
}

// retry puts off the next try after the world's fault, or fails the requests if that goes on for too long, or if a query of
// another database gives what this one can't hold, which it will again. run is 0 where none was to be made.
func (r *round) retry(ctx context.Context, timeout assign.Duration, run int64, cause error) error {
	if pg.Unheld(cause) {
		return r.failRetried(ctx, run, fmt.Sprintf("the query gives text that getwork's database, whose encoding is not UTF-8, can't hold: %v", cause))
	}
	if r.state.retries > 0 && r.state.retrying > time.Duration(timeout)+time.Minute {
		return r.failRetried(ctx, run, fmt.Sprintf("the query could not be brought to an end for %s: %v", r.state.retrying.Round(time.Second), cause))
	}
	if _, err := r.tx.Exec(ctx, r.e.SQL(retryLater), r.task, r.state.retries+1); err != nil {
		return fmt.Errorf("put off the next try: %w", err)
	}
	return nil
}

// failRetried ends the requests of a task whose run can't be brought to an end.
func (r *round) failRetried(ctx context.Context, run int64, message string) error {
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
