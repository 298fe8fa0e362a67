package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
	"getwork/notify"
)

// errSinceRun: the item was let go of since the run that put it on the shelf. Whether it still matches, the query knows.
var errSinceRun = fmt.Errorf("%w: it was let go of since the run", errMoved)

// A claim takes one named item. First it finds the item: in the inbox, on the fresh shelf, where the task's recheck must
// return it, too, or by the ranking query with a condition on the item, which PostgreSQL can push down. Then, in a
// transaction of its own, the lock is taken first, then counted, then decided, by the same plan as in every round: of
// two who claim the last place at once, one gets it and the other is refused.

// named is the supply of a claim: one item, as it was found.
type named struct {
	cand      ranking.Candidate
	source    plan.Source
	run       *int64 // of the shelf
	snapshot  *string
	seenUntil *time.Time
	held      bool // it is reassigned: it was handed out before
}

const selectHeld = `
select ` + records.WorkColumns + `
from getwork.work w join getwork.task_state s using (task_id)
where w.task_id = $1 and w.item = $2 and w.user_name = $3 and w.instance = $4 and w.state = 'held'`

// Claim gives one named item to who asks; claimed is false when it was his already. [NotFound]: it does not match the
// task. [NoSlot]: all its places are taken. [NotAvailable]: it is put off, never to return, or a rule keeps it from him.
func (e *Engine) Claim(ctx context.Context, name, item string, by assign.Who) (w assign.Work, claimed bool, err error) {
	if detail := assign.CheckItem(item); detail != "" {
		return assign.Work{}, false, assign.Refuse(assign.NotFound, "%s", detail)
	}
	task, s, err := e.Records.Find(ctx, name, by)
	if err != nil {
		return assign.Work{}, false, err
	}
	shelf := true // look there first
	for range attempts {
		w, err = e.held1(ctx, task, item, by.Holder)
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
		if err == nil { // by its id: it may be let go of in another tab by now
			w, _, err = e.work(ctx, id, assign.Disposition{})
			return w, true, err
		}
		if !again(err) {
			return assign.Work{}, false, err
		}
		shelf = !errors.Is(err, errSinceRun)
		if task, s, err = e.Records.Find(ctx, name, by); err != nil { // it changed meanwhile
			return assign.Work{}, false, err
		}
	}
	return assign.Work{}, false, assign.Refuse(assign.NotAvailable, "item %q changes hands all the time; try again", item)
}

// held1 reads what a holder holds of an item; pgx.ErrNoRows: nothing.
func (e *Engine) held1(ctx context.Context, task int64, item string, by assign.Holder) (assign.Work, error) {
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

// claim decides under the assign lock; id is the work's that was given.
func (e *Engine) claim(ctx context.Context, task int64, s assign.Settings, found *named, by assign.Who) (id int64, err error) {
	w := waiter{holder: by.Holder, wanted: 1, groups: waitersGroups(by)}
	err = e.transactTelling(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		r, err := e.openRound(ctx, tx, task)
		if err != nil {
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
		o, err := r.stands(ctx, found)
		if err != nil {
			return nil, err
		}
		e.Steps(ctx, StepRead)
		slot, err := r.grant(ctx, w, o)
		if err != nil {
			return nil, err
		}
		id, err = r.give(ctx, w, o, slot, found.run)
		return []notify.Change{{Task: task, Work: []int64{id}}}, err
	})
	if err == nil {
		e.leased()
		e.Steps(ctx, StepCommitted)
	}
	return id, err
}

const selectNamed = `
select ` + standingColumns + `, st.gone,
  coalesce((
    select (array_agg(w.state order by w.id desc))[1] from getwork.work w
    where w.task_id = $1 and w.item = c.item and ` + records.Binding + ` and ` + records.Blocks + `), ''),
  coalesce((select coalesce(i.due_at > clock_timestamp() and i.due_at < 'infinity', false) from getwork.item i where i.task_id = $1 and i.item = c.item and i.done_at is null), $8)
from (select $3::text collate "C" as item, $4::integer as slots, $5::text as exclusive) c
cross join (select $6::text::pg_snapshot as snapshot, $7::timestamptz as seen_until) u` + standing

// stands reads how a named item stands, and refuses what is gone.
func (r *round) stands(ctx context.Context, found *named) (*offer, error) {
	rows, err := r.tx.Query(ctx, r.e.SQL(selectNamed), r.task, r.state.conflicts, found.cand.Item, found.cand.Slots, found.cand.Exclusive,
		found.snapshot, found.seenUntil, found.source == plan.Inbox)
	if err != nil {
		return nil, fmt.Errorf("read how the item stands: %w", err)
	}
	var gone, later bool
	var state string
	o, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (o offer, err error) {
		err = scanStanding(trailing{row, []any{&gone, &state, &later}}, &o)
		return o, err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read how the item stands: %w", err)
	case later && !gone && !found.held:
		return nil, assign.Refuse(assign.NotAvailable, "item %q is not due yet, or was done just now", found.cand.Item)
	case !gone:
		o.cand = found.cand
		return &o, nil
	case state == "held":
		return nil, assign.Refuse(assign.NoSlot, "somebody else holds item %q", found.cand.Item)
	case state == "never":
		return nil, assign.Refuse(assign.NotAvailable, "item %q is not to be handed out again; a manager can redrive it", found.cand.Item)
	case state != "":
		return nil, assign.Refuse(assign.NotAvailable, "item %q is put off", found.cand.Item)
	case found.source == plan.Shelf: // it was closed since that run: ask the query
		return nil, errSinceRun
	}
	return nil, assign.Refuse(assign.NotAvailable, "item %q was let go of just now; try again", found.cand.Item)
}

// trailing lets a scan function read a row that has more columns behind its own.
type trailing struct {
	pgx.CollectableRow
	also []any
}

func (t trailing) Scan(into ...any) error { return t.CollectableRow.Scan(append(into, t.also...)...) }

// grant decides whether somebody may have an item, by the same plan as every round, and which place he gets.
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
		return 0, assign.Refuse(assign.NotAvailable, "%s holds as much of task %q as one may (%d), and would have to let go of something first", w.holder.User, r.state.Name, *r.state.MaxOpen)
	case plan.Barred:
		return 0, r.barred(w, o)
	case plan.AllHeld:
		if o.Busy {
			return 0, assign.Refuse(assign.NoSlot, "another item of the group %q is held; only one at a time is", o.Exclusive)
		}
	}
	return 0, assign.Refuse(assign.NoSlot, "all %d places of item %q are taken", o.Slots, o.cand.Item)
}

// barred says which rule keeps an item from somebody.
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
	return assign.Refuse(assign.NotAvailable, "task %q is for members of its groups: %s", r.state.Name, strings.Join(r.state.Groups, ", "))
}

const selectGiven = `select id from getwork.work where task_id = $1 and item = $2 and user_name = $3 and instance = $4 and state = 'held'`

// give writes one work row, and takes the item out of what an inbox hands out.
func (r *round) give(ctx context.Context, w waiter, o *offer, slot int, run *int64) (id int64, err error) {
	var g grants
	g.add(w, o, slot, r.state.Lease)
	wrote := expecting{batch: &pgx.Batch{}}
	g.insert(&wrote, r, run, nil)
	if r.state.Inbox() {
		wrote.queue(anyNumber, r.e.SQL(parkItems), r.task, g.items, r.state.Slots)
	}
	if err := wrote.send(ctx, r.tx); err != nil {
		return 0, err
	}
	err = r.tx.QueryRow(ctx, r.e.SQL(selectGiven), r.task, o.cand.Item, w.holder.User, w.holder.Instance).Scan(&id)
	return id, err
}

// waitersGroups are somebody's groups as a waiter has them; nil: they need none.
func waitersGroups(w assign.Who) *[]string {
	if w.Anything {
		return nil
	}
	return &w.Groups
}

const (
	selectPushed = `
select i.item, ` + inboxPlaces + `, i.exclusive, i.details::text
from getwork.item i
where i.task_id = $1 and i.item = $2 and i.done_at is null`

	selectOnShelf = `
select c.rank, c.slots, c.exclusive, c.details::text, u.id, u.snapshot::text, u.seen_until
from getwork.task_state s
join getwork.run u on u.id = s.shelf_run
join getwork.candidate c on c.run_id = u.id
where s.task_id = $1 and c.item = $2 and ` + shelfFresh
)

// findNamed looks for the item where it can be found, the cheapest place first; nil: it does not match. What is on the
// shelf, but is not returned by the recheck, is not looked for by the query: that would be handed out in no round either.
func (e *Engine) findNamed(ctx context.Context, task int64, s assign.Settings, item string, shelf bool) (*named, error) {
	if s.Inbox() {
		n := named{source: plan.Inbox}
		err := e.api.QueryRow(ctx, e.SQL(selectPushed), task, item, s.Slots).Scan(&n.cand.Item, &n.cand.Slots, &n.cand.Exclusive, &n.cand.Details)
		return foundOr(&n, err)
	}
	if !shelf {
		return e.queryNamed(ctx, s, item)
	}
	n := named{source: plan.Shelf}
	n.cand.Item = item
	var run int64
	n.run = &run
	err := e.api.QueryRow(ctx, e.SQL(selectOnShelf), task, item).
		Scan(&n.cand.Rank, &n.cand.Slots, &n.cand.Exclusive, &n.cand.Details, &run, &n.snapshot, &n.seenUntil)
	shelved, err := foundOr(&n, err)
	if err != nil {
		return nil, err
	}
	if shelved == nil {
		return e.queryNamed(ctx, s, item)
	}
	still, err := e.Ranker.Recheck(ctx, s, []string{item})
	if err != nil || still != nil && !still[item] {
		return nil, err
	}
	return shelved, nil
}

func foundOr(n *named, err error) (*named, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the item: %w", err)
	}
	return n, nil
}

// No row_number between the query and the condition, so that PostgreSQL can push it down. The snapshot is the
// query's own: what was closed by a transaction that it did not see is not given from it.
const (
	namedHead = `
select item, getwork_rows.slots, getwork_rows.exclusive, ` + ranking.RowDetails + `, pg_current_snapshot()::text
from (values (null::integer, null::text)) getwork_defaults (slots, exclusive)
cross join lateral (` + ranking.RowsHead
	namedTail = ranking.RowsTail + `) getwork_rows
where item = $1 and getwork_rows.slots >= 1 and (getwork_rows.slots = 1 and octet_length(getwork_rows.exclusive) <= 200 or getwork_rows.exclusive is null)
limit 1`
)

// queryNamed has the ranking query look for one item, read only, in one of the node's places for runs.
func (e *Engine) queryNamed(ctx context.Context, s assign.Settings, item string) (n *named, err error) {
	statement := fmt.Sprintf(namedHead, s.Slots) + s.Query.Trimmed() + namedTail
	err = e.Ranker.InTx(ctx, ranking.SlotWait, s.QueryTimeout, func(ctx context.Context, tx pgx.Tx) error {
		found := named{source: plan.Result}
		if e.Ranker.Elsewhere() {
			found.seenUntil = new(time.Time)
			if err := tx.QueryRow(ctx, ranking.SeenUntil).Scan(found.seenUntil); err != nil {
				return err
			}
		}
		var snapshot string
		err := tx.QueryRow(ctx, statement, pgx.QueryExecModeExec, item).
			Scan(&found.cand.Item, &found.cand.Slots, &found.cand.Exclusive, &found.cand.Details, &snapshot)
		found.cand.Details = ranking.DetailsOf(found.cand.Details)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if !e.Ranker.Elsewhere() {
			found.snapshot = &snapshot
		}
		if err != nil || ranking.UsableKeys(found.cand.Item, found.cand.Exclusive) { // as its run would pass it over
			n = &found
		}
		return err
	})
	return n, err
}
