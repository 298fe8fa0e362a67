package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
)

// serveOnce does what [plan.Next] says, once. It reports whether it moved the task on, so that it should be called again. If
// another node has the run lock, that node looks again when it has released the lock, which is after this node's requests
// were committed.
func (e *Engine) serveOnce(ctx context.Context, task int64, lingering bool) (p taskView, moved bool, err error) {
	p, err = e.readTaskView(ctx, e.api, task)
	p.view.Freed = lingering
	if err == nil && plan.Next(p.view) == plan.EndLingering {
		if err = e.endLingering(ctx); err == nil {
			p, err = e.readTaskView(ctx, e.api, task)
			p.view.Freed, p.view.Over = lingering, false // another node ends the rest, or they are served like any other request
		}
	}
	if err != nil {
		return p, false, err
	}
	next := plan.Next(p.view)
	if next != plan.Refresh {
		refresher{e}.noRefresh(task)
	}
	switch next {
	case plan.ServeWithoutRun, plan.Recheck:
		moved, err = e.serveAtOnce(ctx, task, p.Settings, lingering)
		return p, moved, err
	case plan.Nothing:
		return p, false, nil
	case plan.Refresh:
		if !(refresher{e}).mayRefresh(task) {
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
	moved, err = locker{e}.tryLock(ctx, task)
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
	err = pgx.BeginTxFunc(after, e.api, pg.ReadCommitted, func(tx pgx.Tx) (err error) {
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
	}
	return true, err
}

// serveShelf is a round that hands out what the last run left.
func (l locker) serveShelf(ctx context.Context, tx pgx.Tx, task int64) error {
	r, err := l.roundUnderLock(ctx, tx, task)
	if err != nil {
		return err
	}
	if !r.state.serves() || r.state.Recheck != "" {
		return tx.Rollback(ctx) // the shelf has ended meanwhile, or must be rechecked first
	}
	if err := r.serve(ctx, r.supply()); err != nil {
		return err
	}
	return l.commit(ctx, r, 0)
}

const cancelPending = `
update getwork.work_requested
set state = 'cancelled', requested = 0, reason = null, completed_at = clock_timestamp(), round_id = $2
where task_id = $1 and state = 'pending'
returning id`

// endDeleted cancels requests that were recorded while the task was being deleted.
func (l locker) endDeleted(ctx context.Context, tx pgx.Tx, task int64) error {
	r, err := l.roundUnderLock(ctx, tx, task)
	if err != nil {
		return err
	}
	if err := r.readWaiting(ctx); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, l.SQL(cancelPending), task, r.id)
	if err == nil {
		r.answered, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		r.ends = map[assign.State]int{assign.Cancelled: len(r.answered)}
	}
	if err != nil {
		return fmt.Errorf("end requests of a deleted task: %w", err)
	}
	return l.commit(ctx, r, 0)
}
