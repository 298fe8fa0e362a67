package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/records"
	"getwork/notify"
)

// errSinceRun says that the item was closed after the run that put it on the shelf. Only the query knows whether it still
// matches.
var errSinceRun = fmt.Errorf("%w: it was closed after the run", errMoved)

const selectHeld = `
select ` + records.WorkColumns + `
from getwork.work w join getwork.task_state s using (task_id)
where w.task_id = $1 and w.item = $2 and w.user_name = $3 and w.instance = $4 and w.state = 'held'`

// Claim gives one named item to a holder; claimed is false if they held it already. [assign.NotFound]: it does not match the
// task. [assign.NoSlot]: all its places are taken. [assign.NotAvailable]: it is put off or never to return, or a rule keeps
// it from the holder. The query or the recheck may have to be executed, and is refused as a preview is ([assign.QueryRefused],
// [assign.Busy]).
func (e *Engine) Claim(ctx context.Context, name, item string, by assign.Who) (w assign.Work, claimed bool, err error) {
	if detail := assign.CheckItem(item); detail != "" {
		return assign.Work{}, false, assign.Refuse(assign.NotFound, "%s", detail)
	}
	task, s, err := e.Records.Find(ctx, name, by)
	if err != nil {
		return assign.Work{}, false, err
	}
	shelf := true // try the shelf first
	for range attempts {
		w, err = e.heldWork(ctx, task, item, by.Holder)
		if err == nil || !errors.Is(err, pgx.ErrNoRows) {
			return w, false, err
		}
		var found *named
		if found, err = e.findNamed(ctx, task, s, item, shelf); err != nil {
			return assign.Work{}, false, err
		}
		if found == nil {
			return assign.Work{}, false, assign.Refuse(assign.NotFound, "item %q does not match task %q now", item, name)
		}
		var id int64
		id, err = e.claim(ctx, task, s, found, by)
		if err == nil { // by its id: it may have been closed in another tab
			ctx, cancel := pg.Detached(ctx) // it is committed: say so even if the node shuts down
			defer cancel()
			w, _, err = e.work(ctx, id, assign.Disposition{})
			return w, true, err
		}
		if !again(err) {
			return assign.Work{}, false, err
		}
		shelf = !errors.Is(err, errSinceRun)
		if task, s, err = e.Records.Find(ctx, name, by); err != nil { // the settings changed meanwhile
			return assign.Work{}, false, err
		}
	}
	return assign.Work{}, false, assign.Refuse(assign.NotAvailable, "item %q changes hands all the time; try again", item)
}

// heldWork reads a holder's held work on an item, or returns pgx.ErrNoRows.
func (e *Engine) heldWork(ctx context.Context, task int64, item string, by assign.Holder) (assign.Work, error) {
	rows, err := e.api.Query(ctx, e.SQL(selectHeld), task, item, by.User, by.Instance)
	if err != nil {
		return assign.Work{}, fmt.Errorf("read work: %w", err)
	}
	w, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (assign.Work, error) { return records.ScanWork(row) })
	if err != nil {
		err = fmt.Errorf("read work: %w", err)
	}
	return w, err
}

// claim decides under the assign lock; id is the id of the new work.
func (e *Engine) claim(ctx context.Context, task int64, s assign.Settings, found *named, by assign.Who) (id int64, err error) {
	w := waiter{holder: by.Holder, wanted: 1, groups: waitersGroups(by)}
	var r *round
	err = e.transactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
		if r, err = e.openRound(ctx, tx, task); err != nil {
			return nil, err
		}
		switch {
		case r.state.deleted:
			return nil, assign.NoTask(s.Name)
		case r.state.Paused:
			return nil, assign.Refuse(assign.NotAvailable, "task %q is paused; try again when a manager has resumed it", s.Name)
		case r.state.Query != s.Query, r.state.Recheck != s.Recheck, r.state.Slots != s.Slots:
			return nil, errMoved
		}
		if by.Credential != "" {
			shown := proof{credential: by.Credential}
			if ended, err := e.endedOf(ctx, tx, []proof{shown}); err != nil {
				return nil, err
			} else if ended[shown] {
				return nil, errEnded
			}
		}
		now := found
		if found.source == plan.Inbox { // it may have been completed since, and pushed anew with other details or into a group
			if now, err = findPushed(ctx, tx, e.SQL, task, s, found.cand.Item); err != nil {
				return nil, err
			} else if now == nil {
				return nil, errMoved
			}
		}
		o, err := r.availability(ctx, now)
		if err != nil {
			return nil, err
		}
		e.Steps(ctx, StepRead)
		slot, err := r.grant(ctx, w, o)
		if err != nil {
			return nil, err
		}
		id, err = r.give(ctx, w, o, slot, now.run)
		return []notify.Change{{Task: task, Work: []int64{id}}}, err
	})
	if err == nil {
		if r.brief {
			e.wakeSweep()
		}
		e.Steps(ctx, StepCommitted)
	}
	return id, err
}

// grant decides whether a holder may have an item, by the same plan as every round, and which place they get.
func (r *round) grant(ctx context.Context, w waiter, o *offer) (slot int, err error) {
	requests, err := r.requests(ctx, []waiter{w})
	if err != nil {
		return 0, err
	}
	p := plan.Assign(r.rules(), requests, plan.Supply{Source: plan.Inbox, Items: []plan.Item{o.Item}, Usable: true})
	a := p.Answers[0]
	if a.Outcome == plan.Assigned {
		return a.Grants[0].Slot, nil
	}
	switch a.Reason {
	case plan.AtLimit:
		return 0, assign.Refuse(assign.NotAvailable, "%s holds as much of task %q as one user may (%d), and must finish or return something first", w.holder.User, r.state.Name, *r.state.MaxOpen)
	case plan.Barred:
		return 0, r.barred(w, o)
	case plan.AllHeld:
		if o.Busy {
			return 0, assign.Refuse(assign.NoSlot, "an item of the group %q is held already, and only one may be at a time; try again when it is let go of", o.Exclusive)
		}
	}
	return 0, assign.Refuse(assign.NoSlot, "all %d places of item %q are taken", o.Slots, o.cand.Item)
}

// barred says which rule keeps an item from a holder.
func (r *round) barred(w waiter, o *offer) error {
	user := w.holder.User
	switch {
	case slices.Contains(o.Holders, plan.Holder(w.holder)):
		return assign.Refuse(assign.NotAvailable, "%s holds item %q already", user, o.cand.Item)
	case slices.Contains(o.elsewhere, user):
		return assign.Refuse(assign.NotAvailable, "%s holds or completed item %q under a task that task %q conflicts with (four eyes)", user, o.cand.Item, r.state.Name)
	case slices.Contains(o.Barred, user):
		return assign.Refuse(assign.NotAvailable, "%s has returned item %q to others, or put it off", user, o.cand.Item)
	}
	return assign.Refuse(assign.NotAvailable, "only members of the task's groups may take work of %q: %s", r.state.Name, strings.Join(r.state.Groups, ", "))
}

const selectGiven = `select id from getwork.work where task_id = $1 and item = $2 and user_name = $3 and instance = $4 and state = 'held'`

// give writes one work row, and parks the item of an inbox.
func (r *round) give(ctx context.Context, w waiter, o *offer, slot int, run *int64) (id int64, err error) {
	var g grants
	g.add(w, o, slot, r.state.Lease)
	var wrote pg.Writes
	g.insert(&wrote, r, run, nil)
	if r.state.Inbox() {
		wrote.Queue(pg.AnyNumber, r.e.SQL(parkItems), r.task, g.items, r.state.Slots)
	}
	if err := wrote.Send(ctx, r.tx); err != nil {
		return 0, err
	}
	err = r.tx.QueryRow(ctx, r.e.SQL(selectGiven), r.task, o.cand.Item, w.holder.User, w.holder.Instance).Scan(&id)
	return id, err
}

// waitersGroups returns a user's groups as a waiter has them; nil: they need none.
func waitersGroups(w assign.Who) *[]string {
	if w.Anything {
		return nil
	}
	return &w.Groups
}
