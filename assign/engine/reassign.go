package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/notify"
)

const (
	lockWork = `
select w.user_name, w.instance, w.slot, w.exclusive, w.item, w.run_id, coalesce(w.rank, 0), w.details::text, w.attempt,
  w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
from getwork.work w
where w.id = $1
for update`

	closeReassigned = `
update getwork.work
set state = 'reassigned', closed_at = least(clock_timestamp(), lease_expires_at), closed_by = $2, closed_xid = pg_current_xact_id()
where id = $1 and state = 'held'`
)

// Reassign gives held work to another user, in the same place: his own work row begins with its lease anew, the former
// holder's is closed as reassigned. The rules of the task hold for him as for everybody: [NotAvailable] says which one
// stands against it. [AlreadyClosed]: it is not held any more.
func (e *Engine) Reassign(ctx context.Context, id int64, to, by string) (assign.Work, error) {
	if err := assign.CheckUser(to); err != nil {
		return assign.Work{}, err
	}
	old, _, err := e.work(ctx, id, assign.Disposition{})
	if assign.IsRefusal(err, assign.NotFound) {
		return assign.Work{}, noSuchWork(id)
	}
	if err != nil {
		return assign.Work{}, err
	}
	if old.State == "held" && old.Holder() == (assign.Holder{User: to}) {
		return old, nil
	}
	var given int64
	err = e.transactTelling(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		r, err := e.openRound(ctx, tx, old.TaskID)
		if err != nil {
			return nil, err
		}
		given, err = r.reassign(ctx, id, waiter{holder: assign.Holder{User: to}, wanted: 1}, by)
		return []notify.Change{{Task: old.TaskID, Work: []int64{id, given}}}, err
	})
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return assign.Work{}, err
	}
	if err != nil {
		return assign.Work{}, fmt.Errorf("reassign work: %w", err)
	}
	e.leased()
	e.freed(ctx, old.TaskID)
	w, _, err := e.work(ctx, given, assign.Disposition{})
	return w, err
}

func noSuchWork(id int64) error {
	return assign.Refuse(assign.NotFound, "there is no work %d; GET /api/v1/work lists all that there is", id)
}

// anyPlaces is more than any item has: the place that is passed on is not counted again.
const anyPlaces = 1 << 20

func (r *round) reassign(ctx context.Context, id int64, to waiter, by string) (given int64, err error) {
	var o offer
	var from plan.Holder
	var run *int64
	var slot, attempt int
	var held bool
	err = r.tx.QueryRow(ctx, r.e.SQL(lockWork), id).Scan(&from.User, &from.Instance, &slot, &o.cand.Exclusive, &o.cand.Item, &run, &o.cand.Rank, &o.cand.Details, &attempt, &held)
	if errors.Is(err, pgx.ErrNoRows) { // it was over, and has been removed
		return 0, noSuchWork(id)
	}
	if err != nil {
		return 0, err
	}
	if !held {
		return 0, assign.Refuse(assign.AlreadyClosed, "work %d is not held any more; `GET /api/v1/work?item=` shows what became of it", id)
	}
	if _, err := r.tx.Exec(ctx, r.e.SQL(closeReassigned), id, by); err != nil {
		return 0, err
	}
	// How the item stands without him: his place and his group are free.
	stands, err := r.stands(ctx, &named{cand: ranking.Candidate{Item: o.cand.Item, Slots: anyPlaces}, held: true})
	if err != nil {
		return 0, err
	}
	stands.cand, stands.attempt = o.cand, attempt
	if _, err := r.grant(ctx, to, stands); err != nil {
		return 0, err
	}
	return r.give(ctx, to, stands, slot, run)
}
