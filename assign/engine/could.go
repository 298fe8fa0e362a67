package engine

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
)

// Could returns, for each of the users, what [Engine.ClaimFor] would refuse a claim of the item in their name with; nil: they may have
// it. x says where the item was found, and who holds it. A claim decides by the same reads ([round.requests], [round.availability]) and
// the same function, but under the lock: what changes in between is refused then.
func (e *Engine) Could(ctx context.Context, task int64, x *assign.Explanation, users []records.Known) ([]*assign.Refusal, error) {
	refused := make([]*assign.Refusal, len(users))
	err := pg.Transact(ctx, e.DB, func(tx pgx.Tx) error {
		r := &round{e: e, tx: tx, task: task, looks: true}
		if _, err := r.lock(ctx, nil); err != nil {
			return err
		}
		o, all := r.lookAt(ctx, x)
		if all != nil && !errors.As(all, new(*assign.Refusal)) {
			return all
		}
		waiting := make([]waiter, len(users))
		for i, u := range users {
			waiting[i] = waiter{holder: u.Who.Holder, wanted: 1, groups: waitersGroups(u.Who), program: u.Who.Program}
		}
		requests, err := r.requests(ctx, waiting)
		if err != nil {
			return err
		}
		holds := map[assign.Holder]bool{}
		for _, w := range x.Held {
			holds[w.Holder()] = true
		}
		for i, u := range users {
			err := all
			switch user := u.Who.Holder.User; {
			case holds[u.Who.Holder]:
				err = errHolds(user, x.Item)
			case u.Blocked:
				err = errBlocked(user)
			case all == nil:
				_, err = r.place(&requests[i], o)
			}
			if err != nil && !errors.As(err, &refused[i]) {
				return err
			}
		}
		return nil
	})
	return refused, err
}

// lookAt reads an item as a claim does. Its refusals concern everybody.
func (r *round) lookAt(ctx context.Context, x *assign.Explanation) (*offer, error) {
	if r.state.deleted {
		return nil, assign.NoTask(x.Task)
	}
	if r.state.Paused {
		return nil, errPaused(r.state.Name)
	}
	found := named{cand: ranking.Candidate{Item: x.Item, Slots: x.Slots, Exclusive: x.Exclusive}, source: plan.Result, needs: x.Needs}
	switch x.Source {
	case "inbox":
		found.source = plan.Inbox
	case "shelf":
		shelved, err := findShelved(ctx, r.tx, r.e.SQL, r.task, x.Item)
		if err != nil {
			return nil, err
		}
		if shelved != nil { // otherwise it is over
			found = *shelved
		}
	}
	o, err := r.availability(ctx, &found)
	if errors.Is(err, errSinceRun) { // a claim asks the query, as of now
		found.source, found.snapshot, found.seenUntil = plan.Result, nil, nil
		o, err = r.availability(ctx, &found)
	}
	return o, err
}
