package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/ranking"
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
	return e.claimNamed(ctx, name, item, claimant{sees: by, holder: by.Holder, who: func(context.Context) (assign.Who, error) { return by, nil }})
}

// ClaimFor is [Engine.Claim] in the name of somebody who has not asked, for [manage.Give]. Who that is and what they may have is read
// anew when the item was found, which can take as long as the query. It refuses who is blocked, and unless it is forced who has not
// been seen. also is called in the transaction when everything is written, and writes the audit.
func (e *Engine) ClaimFor(ctx context.Context, name, item string, to assign.Reassignment, also func(tx pgx.Tx, given int64) error) (w assign.Work, claimed bool, err error) {
	who := func(ctx context.Context) (assign.Who, error) {
		known, err := e.Records.Known(ctx, to.User)
		if err != nil {
			return assign.Who{}, err
		}
		if !known[0].Seen && !to.Force {
			return assign.Who{}, errUnseen(to.User)
		}
		return known[0].Who, nil
	}
	if _, err := who(ctx); err != nil { // before a query is run for nothing
		return assign.Work{}, false, err
	}
	return e.claimNamed(ctx, name, item, claimant{sees: assign.Who{Anything: true, Picks: true}, holder: assign.Holder{User: to.User}, who: who, also: also})
}

// claimant is who claims an item.
type claimant struct {
	sees   assign.Who    // who looks for the item
	holder assign.Holder // who gets it
	who    func(context.Context) (assign.Who, error)
	also   func(tx pgx.Tx, given int64) error // nil: the holder claims it
}

func (e *Engine) claimNamed(ctx context.Context, name, item string, c claimant) (w assign.Work, claimed bool, err error) {
	if detail := assign.CheckItem(item); detail != "" {
		return assign.Work{}, false, assign.Refuse(assign.NotFound, "%s", detail)
	}
	task, s, err := e.Records.Find(ctx, name, c.sees)
	if err != nil {
		return assign.Work{}, false, err
	}
	if s.Pick == "next" && !c.sees.Picks {
		return assign.Work{}, false, assign.Refuse(assign.Forbidden, "%s", assign.NotByName(name))
	}
	shelf := true // try the shelf first
	for range attempts {
		w, err = e.heldWork(ctx, task, item, c.holder)
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
		var by assign.Who
		if by, err = c.who(ctx); err != nil {
			return assign.Work{}, false, err
		}
		var id int64
		id, err = e.claim(ctx, task, s, found, by, c.also)
		if err == nil { // by its id: it may have been closed in another tab
			ctx, cancel := pg.Detached(ctx) // it is committed: say so even if the node shuts down
			defer cancel()
			w, err = e.Records.Work(ctx, id)
			return w, true, err
		}
		if !again(err) {
			return assign.Work{}, false, err
		}
		shelf = !errors.Is(err, errSinceRun)
		if task, s, err = e.Records.Find(ctx, name, c.sees); err != nil { // the settings changed meanwhile
			return assign.Work{}, false, err
		}
	}
	return assign.Work{}, false, assign.Refuse(assign.NotAvailable, "item %q changes hands all the time; try again", item)
}

// heldWork reads a holder's held work on an item, or returns pgx.ErrNoRows.
func (e *Engine) heldWork(ctx context.Context, task int64, item string, by assign.Holder) (assign.Work, error) {
	rows, err := e.DB.Query(ctx, e.SQL(selectHeld), task, item, by.User, by.Instance)
	if err != nil {
		return assign.Work{}, fmt.Errorf("read work: %w", err)
	}
	w, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (assign.Work, error) { return records.ScanWork(row) })
	if err != nil {
		err = fmt.Errorf("read work: %w", err)
	}
	return w, err
}

const selectBlocked = `select exists (select from getwork.principal p where p.name = $1 and p.blocked_at is not null)`

// claim decides under the assign lock; id is the id of the new work. also: see [Engine.ClaimFor].
func (e *Engine) claim(ctx context.Context, task int64, s assign.Settings, found *named, by assign.Who, also func(tx pgx.Tx, given int64) error) (id int64, err error) {
	w := waiter{holder: by.Holder, wanted: 1, groups: waitersGroups(by), program: by.Program}
	var r *round
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
		if r, err = e.openRound(ctx, tx, task); err != nil {
			return nil, err
		}
		switch {
		case r.state.deleted:
			return nil, assign.NoTask(s.Name)
		case r.state.Paused:
			return nil, errPaused(s.Name)
		case r.state.Query != s.Query, r.state.Recheck != s.Recheck, r.state.Slots != s.Slots, r.state.DoneBy != s.DoneBy:
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
		if also != nil {
			var blocked bool
			if err := tx.QueryRow(ctx, e.SQL(selectBlocked), by.Holder.User).Scan(&blocked); err != nil {
				return nil, fmt.Errorf("read who gets the item: %w", err)
			}
			if blocked {
				return nil, errBlocked(by.Holder.User)
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
		if err == nil && also != nil {
			err = also(tx, id)
		}
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

// grant decides whether a holder may have an item, by the rules of every round, and which place they get.
func (r *round) grant(ctx context.Context, w waiter, o *offer) (slot int, err error) {
	requests, err := r.requests(ctx, []waiter{w})
	if err != nil {
		return 0, err
	}
	return r.place(&requests[0], o)
}

// place is grant for a waiter as the plan sees them.
func (r *round) place(request *plan.Request, o *offer) (slot int, err error) {
	user, item := request.Holder.User, o.cand.Item
	switch plan.Bars(request, &o.Item) {
	case plan.Free:
		return o.Place(0), nil
	case plan.NoRoom:
		switch request.Why {
		case plan.AtLimit:
			if q := r.quotas[user]; q != nil && q.held >= q.limit {
				return 0, assign.Refuse(assign.NotAvailable, "%s holds %d of %d items, the limit over all tasks, and must finish or return something first", user, q.held, q.limit)
			}
			return 0, assign.Refuse(assign.NotAvailable, "%s holds as much of task %q as one user may (%d), and must finish or return something first", user, r.state.Name, *r.state.MaxOpen)
		case plan.Barred:
			return 0, assign.Refuse(assign.NotAvailable, "only members of the task's groups may take work of %q: %s; %s was in none of them at their last log-in or request",
				r.state.Name, strings.Join(r.state.Groups, ", "), user)
		case plan.Away:
			if until := r.state.away[user]; until != nil {
				return 0, assign.Refuse(assign.NotAvailable, "%s is away until %s, and gets no work; `getwork back` ends the absence earlier", user, until.UTC().Format("2006-01-02 15:04 MST"))
			}
			return 0, assign.Refuse(assign.NotAvailable, "%s is away, and gets no work; `getwork back` ends the absence", user)
		}
	case plan.Full:
		return 0, assign.Refuse(assign.NoSlot, "all %d places of item %q are taken", o.Slots, item)
	case plan.GroupHeld:
		return 0, assign.Refuse(assign.NoSlot, "an item of the group %q is held already, and only one may be at a time; try again when it is let go of", o.Exclusive)
	case plan.HoldsIt:
		return 0, errHolds(user, item)
	case plan.Completed:
		return 0, assign.Refuse(assign.NotAvailable, "%s has completed item %q, and different people are to", user, item)
	case plan.FourEyes:
		if r.state.Once {
			return 0, assign.Refuse(assign.NotAvailable, "%s holds or completed item %q under task %q, which gives it to each user once, or under one that it conflicts with", user, item, r.state.Name)
		}
		return 0, assign.Refuse(assign.NotAvailable, "%s holds or completed item %q under a task that task %q conflicts with (four eyes)", user, item, r.state.Name)
	case plan.Needs:
		return 0, assign.Refuse(assign.NotAvailable, "item %q needs %s, and %s lacks %s; `getwork skills` says what somebody can", item, strings.Join(o.Needs, ", "), user, strings.Join(request.Lacks(o.Needs), ", "))
	case plan.LetGo:
		return 0, assign.Refuse(assign.NotAvailable, "%s has returned item %q to others, or put it off", user, item)
	}
	return 0, fmt.Errorf("a rule keeps %s from item %q, and has no refusal", user, item)
}

const selectGiven = `select id from getwork.work where task_id = $1 and item = $2 and user_name = $3 and instance = $4 and state = 'held'`

// give writes one work row, and parks the item of an inbox.
func (r *round) give(ctx context.Context, w waiter, o *offer, slot int, run *int64) (id int64, err error) {
	var g grants
	g.add(w, o, slot, r.state.Lease, r.quotas[w.holder.User])
	var wrote pg.Writes
	g.insert(&wrote, r, run, nil)
	if r.state.Inbox() {
		wrote.Queue(pg.AnyNumber, r.e.SQL(parkItems), r.task, g.items, r.state.Slots, r.state.DoneBy)
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

// A claim takes one named item. First it finds the item: in the inbox, on the fresh shelf, where the task's recheck must
// return it, or by the ranking query with a condition on the item, which PostgreSQL can push down. Then a new transaction
// takes the lock first, counts second, and decides third, by the rules of every round. If two holders claim the last
// place at once, one gets it and the other is refused.

// named is the supply of a claim: one item, as it was found.
type named struct {
	cand      ranking.Candidate
	source    plan.Source
	run       *int64     // the run whose shelf it is on; nil: none
	snapshot  *string    // what the query that ranked it saw, see availabilityBase; nil: none did
	seenUntil *time.Time // the same, if the query ran on a query database
	from      *int64     // see offer
	held      bool       // it is being reassigned, so it was handed out before
	needs     []string
}

// $9 is the done_by of an inbox; 0: the task has a query.
var selectNamed = `
select st.gone,
  coalesce((
    select (array_agg(w.state order by w.id desc))[1] from ` + records.Binding + ` w
    where w.task_id = $1 and w.item = c.item and ` + records.Blocks + `), ''),
  coalesce((select coalesce(i.due_at > clock_timestamp() and i.due_at < 'infinity', false) from getwork.item i where i.task_id = $1 and i.item = c.item and i.done_at is null), $8),
  case when $9::integer > 0 then (select ` + strings.ReplaceAll(CompletedOf, "$4", "$9") + ` from getwork.item i where i.task_id = $1 and i.item = c.item and i.done_at is null) end,
  ` + AvailabilityColumns + `
from (select $3::text collate "C" as item, $4::integer as slots, $5::text as exclusive) c
cross join (select $6::text::pg_snapshot as snapshot, $7::timestamptz as seen_until) u` + Availability

// availability reads whether a named item can be handed out, and refuses an item that is gone.
func (r *round) availability(ctx context.Context, found *named) (*offer, error) {
	doneBy := 0
	if r.state.Inbox() {
		doneBy = r.state.DoneBy
	}
	rows, err := r.tx.Query(ctx, r.e.SQL(selectNamed), r.task, r.state.conflicts, found.cand.Item, found.cand.Slots, found.cand.Exclusive,
		found.snapshot, found.seenUntil, found.source == plan.Inbox, doneBy)
	if err != nil {
		return nil, fmt.Errorf("read the item's availability: %w", err)
	}
	var gone, later bool
	var state string
	var completed []string
	o, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (o offer, err error) {
		err = scanAvailability(row, &o, &gone, &state, &later, &completed)
		DifferentUsers(&o.Item, completed)
		o.Once = o.Once || r.state.Once
		return o, err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the item's availability: %w", err)
	case later && !gone && !found.held:
		return nil, assign.Refuse(assign.NotAvailable, "item %q is not due yet, or was done just now", found.cand.Item)
	case !gone:
		o.cand, o.from = found.cand, found.from
		o.Needs = found.needs
		r.needy = r.needy || len(found.needs) > 0
		return &o, nil
	case state == "held":
		return nil, assign.Refuse(assign.NoSlot, "somebody else holds item %q", found.cand.Item)
	case state == "never":
		return nil, assign.Refuse(assign.NotAvailable, "item %q is not to be handed out again; a manager can redrive it", found.cand.Item)
	case state != "":
		return nil, assign.Refuse(assign.NotAvailable, "item %q is put off", found.cand.Item)
	case found.source == plan.Shelf: // it was closed after that run: ask the query
		return nil, errSinceRun
	}
	return nil, assign.Refuse(assign.NotAvailable, "item %q was let go of just now; try again", found.cand.Item)
}

const (
	selectPushed = `
select i.item, ` + InboxPlaces + `, i.exclusive, i.details::text, i.deadline, i.from_work, ` + InboxNeeds + `
from getwork.item i
where i.task_id = $1 and i.item = $2 and i.done_at is null`

	selectOnShelf = `
select c.rank, c.slots, c.exclusive, c.details::text, c.deadline, u.id, u.snapshot::text, u.seen_until, u.needs->(c.class - 1)->'needs'
from getwork.task_state s
join getwork.run u on u.id = s.shelf_run
cross join lateral getwork.shelved(u.id, $2) c
where s.task_id = $1 and ` + ShelfFresh
)

// findNamed finds the item, in the cheapest source first; nil: it does not match. If shelf is false, it leaves out the shelf. If
// the item is on the shelf but the recheck does not return it, the query is not asked, because no round would hand the item out
// either.
func (e *Engine) findNamed(ctx context.Context, task int64, s assign.Settings, item string, shelf bool) (*named, error) {
	if s.Inbox() {
		return findPushed(ctx, e.DB, e.SQL, task, s, item)
	}
	if !shelf {
		return e.queryNamed(ctx, s, item)
	}
	shelved, err := findShelved(ctx, e.DB, e.SQL, task, item)
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

// findShelved finds an item on the fresh shelf; nil: it is not there.
func findShelved(ctx context.Context, db queryer, sql func(string) string, task int64, item string) (*named, error) {
	var run int64
	n := named{cand: ranking.Candidate{Item: item}, source: plan.Shelf, run: &run}
	err := db.QueryRow(ctx, sql(selectOnShelf), task, item).
		Scan(&n.cand.Rank, &n.cand.Slots, &n.cand.Exclusive, &n.cand.Details, &n.cand.Deadline, &run, &n.snapshot, &n.seenUntil, &n.needs)
	return foundOr(&n, err)
}

// findPushed finds an item in an inbox; nil: it was not pushed, or is done.
func findPushed(ctx context.Context, db queryer, sql func(string) string, task int64, s assign.Settings, item string) (*named, error) {
	n := named{source: plan.Inbox}
	err := db.QueryRow(ctx, sql(selectPushed), task, item, s.Slots, s.DoneBy).Scan(&n.cand.Item, &n.cand.Slots, &n.cand.Exclusive, &n.cand.Details, &n.cand.Deadline, &n.from, &n.needs)
	return foundOr(&n, err)
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

// No row_number stands between the query and the condition, so that PostgreSQL can push the condition down. The snapshot is
// the query's own: an item that was closed by a transaction that the query did not see is not handed out from it.
const (
	namedHead = `
select item, getwork_rows.slots, getwork_rows.exclusive, ` + ranking.RowDetails + `, ` + ranking.RowDue + `, ` + ranking.RowNeeds + `, pg_current_snapshot()::text
from ` + ranking.Defaults + `
cross join lateral (` + ranking.RowsHead
	namedTail = ranking.RowsTail + `) getwork_rows
where item = $1 and octet_length(item) <= 200 and getwork_rows.slots >= 1 and (getwork_rows.slots = 1 and octet_length(getwork_rows.exclusive) <= 200 or getwork_rows.exclusive is null)
limit 1`
)

// queryNamed runs the ranking query for one item, read only, in the node's slot for asking.
func (e *Engine) queryNamed(ctx context.Context, s assign.Settings, item string) (n *named, err error) {
	statement := fmt.Sprintf(namedHead, s.Slots) + s.Query.Trimmed() + namedTail
	err = e.Ranker.InTx(ctx, s, "query", func(ctx context.Context, tx pgx.Tx) error {
		found := named{source: plan.Result}
		if e.Ranker.Elsewhere() {
			var err error
			if found.snapshot, found.seenUntil, err = e.Ranker.Seen(ctx, tx); err != nil {
				return err
			}
		}
		var snapshot string
		var own ranking.Own
		var usable bool
		err := tx.QueryRow(ctx, statement, pgx.QueryExecModeExec, item).
			Scan(&found.cand.Item, &found.cand.Slots, &found.cand.Exclusive, &found.cand.Details, &own.Deadline, &own.Needs, &snapshot)
		found.cand.Details, found.cand.Deadline, found.needs, usable = ranking.DetailsOf(found.cand.Details, own)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if !e.Ranker.Elsewhere() {
			found.snapshot = &snapshot
		}
		if err != nil || usable && ranking.UsableKeys(found.cand.Item, found.cand.Exclusive) { // a run would pass over other keys
			n = &found
		}
		return err
	})
	return n, err
}

// PassOn gives held work to another holder, in the same place, for [manage.Reassign]; given is the id of the new work, or id itself
// if its holder is that one. known: they have been seen, or need not have been. also is called in the transaction when everything is
// written, and writes the audit.
func (e *Engine) PassOn(ctx context.Context, task, id int64, to assign.Who, known bool, by string, also func(tx pgx.Tx, given int64) error) (given int64, err error) {
	w := waiter{holder: to.Holder, wanted: 1, groups: waitersGroups(to), program: to.Program}
	var r *round
	pass := func(tx pgx.Tx) (_ []notify.Change, err error) {
		if r, err = e.openRound(ctx, tx, task); err != nil {
			return nil, err
		}
		if given, err = r.reassign(ctx, id, w, known, by); err != nil || given == id {
			return nil, err
		}
		return []notify.Change{{Task: task, Work: []int64{id, given}}}, also(tx, given)
	}
	for range attempts {
		if err = e.TransactAnnouncing(ctx, pass); !again(err) {
			break
		}
	}
	if again(err) { // each time another task gave them the seat first
		err = assign.Refuse(assign.NotAvailable, "%s is being given work of other tasks; try again", to.Holder.User)
	}
	if err == nil && given != id {
		e.CountClosed(task, assign.WorkReassigned, 1)
		if r.brief {
			e.wakeSweep()
		}
		e.WakeFreed(ctx, task)
	}
	return given, err
}

// anyPlaces is more places than any item has: the place that is passed on is not counted again.
const anyPlaces = 1 << 20

const (
	lockWork = `
select w.user_name, w.instance, w.slot, w.exclusive, w.item, w.run_id, coalesce(w.rank, 0), w.details::text, w.deadline, w.from_work, w.needs, w.attempt,
  w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp()),
  exists (select from getwork.principal p where p.name = $2 and p.blocked_at is not null)
from getwork.work w
where w.id = $1
for update`

	closeReassigned = `
update getwork.work
set state = 'reassigned', closed_at = least(clock_timestamp(), lease_expires_at), closed_by = $2, closed_xid = pg_current_xact_id(),
  code = '` + assign.CodeReassigned + `'
where id = $1 and state = 'held'`
)

// reassign returns the id of the new work, or id itself if its holder is the one it is to go to. known: that one has been seen, or need
// not have been.
func (r *round) reassign(ctx context.Context, id int64, to waiter, known bool, by string) (given int64, err error) {
	var o offer
	var from assign.Holder
	var run *int64
	var needs []string
	var slot, attempt int
	var held, blocked bool
	err = r.tx.QueryRow(ctx, r.e.SQL(lockWork), id, to.holder.User).Scan(&from.User, &from.Instance, &slot, &o.cand.Exclusive, &o.cand.Item, &run, &o.cand.Rank, &o.cand.Details, &o.cand.Deadline, &o.from, &needs, &attempt, &held, &blocked)
	if errors.Is(err, pgx.ErrNoRows) { // it was closed, and has been removed
		return 0, NoSuchWork(id)
	}
	if err != nil {
		return 0, err
	}
	if !held {
		return 0, assign.Refuse(assign.AlreadyClosed, "work %d is not held any more; `GET /api/v1/work?item=` shows what became of it", id)
	}
	if from == to.holder {
		return id, nil
	}
	if blocked {
		return 0, errBlocked(to.holder.User)
	}
	if !known {
		return 0, errUnseen(to.holder.User)
	}
	if _, err := r.tx.Exec(ctx, r.e.SQL(closeReassigned), id, by); err != nil {
		return 0, err
	}
	// The item without its present holder: their place and their group are free.
	stands, err := r.availability(ctx, &named{cand: ranking.Candidate{Item: o.cand.Item, Slots: anyPlaces}, needs: needs, held: true})
	if err != nil {
		return 0, err
	}
	stands.cand, stands.from, stands.attempt = o.cand, o.from, attempt
	if _, err := r.grant(ctx, to, stands); err != nil {
		return 0, err
	}
	return r.give(ctx, to, stands, slot, run)
}

func errHolds(user, item string) error {
	return assign.Refuse(assign.NotAvailable, "%s holds item %q already", user, item)
}

func errPaused(task string) error {
	return assign.Refuse(assign.NotAvailable, "task %q is paused; try again when a manager has resumed it", task)
}

func errBlocked(user string) error {
	return assign.Refuse(assign.NotAvailable, "%s is blocked, and gets no work; choose somebody else", user)
}

func errUnseen(user string) error {
	r := assign.Refuse(assign.NotAvailable, "nobody called %q has logged in, asked for work or held any here; check the name, or send \"force\": true if they are still to come", user)
	r.Fields = []assign.Field{{Field: "force", Detail: r.Detail}}
	return r
}

// NoSuchWork returns the refusal, [assign.NotFound], of work that does not exist, for a manager.
func NoSuchWork(id int64) error {
	return assign.Refuse(assign.NotFound, "there is no work %d; GET /api/v1/work lists all work", id)
}
