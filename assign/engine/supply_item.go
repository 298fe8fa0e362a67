package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
)

// A claim takes one named item. First it finds the item: in the inbox, on the fresh shelf, where the task's recheck must
// return it, or by the ranking query with a condition on the item, which PostgreSQL can push down. Then a new transaction
// takes the lock first, counts second, and decides third, by the same plan as every round. If two holders claim the last
// place at once, one gets it and the other is refused.

// named is the supply of a claim: one item, as it was found.
type named struct {
	cand      ranking.Candidate
	source    plan.Source
	run       *int64     // the run whose shelf it is on; nil: none
	snapshot  *string    // what the query that ranked it saw, see availabilityBase; nil: there is none
	seenUntil *time.Time // the same, if the query ran on another database
	held      bool       // it is being reassigned, so it was handed out before
}

const selectNamed = `
select ` + availabilityColumns + `, st.gone,
  coalesce((
    select (array_agg(w.state order by w.id desc))[1] from ` + records.Binding + ` w
    where w.task_id = $1 and w.item = c.item and ` + records.Blocks + `), ''),
  coalesce((select coalesce(i.due_at > clock_timestamp() and i.due_at < 'infinity', false) from getwork.item i where i.task_id = $1 and i.item = c.item and i.done_at is null), $8)
from (select $3::text collate "C" as item, $4::integer as slots, $5::text as exclusive) c
cross join (select $6::text::pg_snapshot as snapshot, $7::timestamptz as seen_until) u` + availability

// availability reads whether a named item can be handed out, and refuses an item that is gone.
func (r *round) availability(ctx context.Context, found *named) (*offer, error) {
	rows, err := r.tx.Query(ctx, r.e.SQL(selectNamed), r.task, r.state.conflicts, found.cand.Item, found.cand.Slots, found.cand.Exclusive,
		found.snapshot, found.seenUntil, found.source == plan.Inbox)
	if err != nil {
		return nil, fmt.Errorf("read the item's availability: %w", err)
	}
	var gone, later bool
	var state string
	o, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (o offer, err error) {
		err = scanAvailability(trailing{row, []any{&gone, &state, &later}}, &o)
		return o, err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the item's availability: %w", err)
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
	case found.source == plan.Shelf: // it was closed after that run: ask the query
		return nil, errSinceRun
	}
	return nil, assign.Refuse(assign.NotAvailable, "item %q was let go of just now; try again", found.cand.Item)
}

// trailing lets a scan function read a row that has more columns after its own.
type trailing struct {
	pgx.CollectableRow
	also []any
}

func (t trailing) Scan(into ...any) error { return t.CollectableRow.Scan(append(into, t.also...)...) }

const (
	selectPushed = `
select i.item, ` + inboxPlaces + `, i.exclusive, i.details::text
from getwork.item i
where i.task_id = $1 and i.item = $2 and i.done_at is null`

	selectOnShelf = `
select c.rank, c.slots, c.exclusive, c.details::text, u.id, u.snapshot::text, u.seen_until
from getwork.task_state s
join getwork.run u on u.id = s.shelf_run
cross join lateral getwork.shelved(u.id, $2) c
where s.task_id = $1 and ` + shelfFresh
)

// findNamed looks for the item, in the cheapest source first; nil: it does not match. If shelf is false, it leaves out the shelf. If
// the item is on the shelf but the recheck does not return it, the query is not asked, because no round would hand the item out
// either.
func (e *Engine) findNamed(ctx context.Context, task int64, s assign.Settings, item string, shelf bool) (*named, error) {
	if s.Inbox() {
		return findPushed(ctx, e.api, e.SQL, task, s, item)
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

// findPushed looks for an item in an inbox; nil: it was not pushed, or is done.
func findPushed(ctx context.Context, db queryer, sql func(string) string, task int64, s assign.Settings, item string) (*named, error) {
	n := named{source: plan.Inbox}
	err := db.QueryRow(ctx, sql(selectPushed), task, item, s.Slots).Scan(&n.cand.Item, &n.cand.Slots, &n.cand.Exclusive, &n.cand.Details)
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
select item, getwork_rows.slots, getwork_rows.exclusive, ` + ranking.RowDetails + `, pg_current_snapshot()::text
from (values (null::integer, null::text)) getwork_defaults (slots, exclusive)
cross join lateral (` + ranking.RowsHead
	namedTail = ranking.RowsTail + `) getwork_rows
where item = $1 and octet_length(item) <= 200 and getwork_rows.slots >= 1 and (getwork_rows.slots = 1 and octet_length(getwork_rows.exclusive) <= 200 or getwork_rows.exclusive is null)
limit 1`
)

// queryNamed runs the ranking query for one item, read only, in one of the node's run slots.
func (e *Engine) queryNamed(ctx context.Context, s assign.Settings, item string) (n *named, err error) {
	statement := fmt.Sprintf(namedHead, s.Slots) + s.Query.Trimmed() + namedTail
	err = e.Ranker.InTx(ctx, ranking.SlotWait, s, "query", func(ctx context.Context, tx pgx.Tx) error {
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
		if err != nil || ranking.UsableKeys(found.cand.Item, found.cand.Exclusive) { // a run would pass over other keys
			n = &found
		}
		return err
	})
	return n, err
}
