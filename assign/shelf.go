package assign

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign/plan"
)

// available is what an item must be so that it can be handed out now from a run u with the task_id $1. Items have
// one place: held, put off or never is out. And what was closed by a transaction that the run did not see is not
// handed out from it: the query may have ranked it by what was true before. By transaction, not by time: a closing
// can be stamped before a snapshot and commit after it. Of a closing that we can see the transaction is older than our
// own snapshot's end; a newer one is of another server's life, from which the tables were restored.
const available = `not exists (
    select from getwork.work w
    where w.task_id = $1 and w.item = c.item
      and (w.state in ('held', 'never')
        or w.available_at > clock_timestamp()
        or not pg_visible_in_snapshot(w.closed_xid, u.snapshot) and w.closed_xid < pg_snapshot_xmax(pg_current_snapshot())
        or w.closed_at > u.seen_until))`

// shelf hands out what the last run left.
type shelf struct{ *round }

func (s shelf) source() plan.Source { return plan.Shelf }
func (s shelf) cut() bool           { return s.state.shelfCut }
func (s shelf) usable() int64       { return s.state.shelfUsable }
func (s shelf) runID() int64        { return s.state.shelfRun }

const selectShelf = `
select c.rank, c.item, c.details::text
from getwork.candidate c join getwork.run u on u.id = c.run_id
where c.run_id = $2 and c.rank >= $3 and ` + available + `
order by c.rank
limit $4`

// take reads the shelf from where it was left: candidates of a lower rank were handed out, or can't be any more.
func (s shelf) take(ctx context.Context, r *round, n int) ([]ranked, bool, error) {
	rows, err := r.tx.Query(ctx, r.e.SQL(selectShelf), r.task, s.state.shelfRun, s.state.shelfFrom, n)
	if err != nil {
		return nil, false, err
	}
	items, err := pgx.CollectRows(rows, scanRanked)
	return items, len(items) < n, err
}

func scanRanked(row pgx.CollectableRow) (ranked, error) {
	var r ranked
	err := row.Scan(&r.rank, &r.item, &r.details)
	return r, err
}

const settleShelf = `
update getwork.task_state
set shelf_from = $2, fresh_until = case when $3 then clock_timestamp() else fresh_until end
where task_id = $1`

// settle moves the shelf on; a spent one ends at once, and the next look runs the query.
func (s shelf) settle(next int64, spent bool) (string, []any) {
	return settleShelf, []any{next, spent}
}

// outcome hands out a run's own result in the run's own round.
type outcome struct {
	result
	run      int64
	freshFor Duration // how long the leftovers stay as the shelf; 0: they don't
}

func (o *outcome) source() plan.Source { return plan.Run }
func (o *outcome) cut() bool           { return o.result.cut }
func (o *outcome) usable() int64       { return o.given - o.passedOver }
func (o *outcome) runID() int64        { return o.run }

const selectAvailable = `
select c.rank
from unnest($2::bigint[], $3::text[]) as c (rank, item)
cross join (select $4::text::pg_snapshot as snapshot, $5::timestamptz as seen_until) u
where ` + available + `
order by c.rank
limit $6`

// take asks which of the items can be handed out still: while the query ran, the old shelf, claims and people
// went on. From the best, in growing chunks, until there are enough.
func (o *outcome) take(ctx context.Context, r *round, n int) ([]ranked, bool, error) {
	var free []ranked
	chunk := max(256, 2*n)
	for from := 0; from < len(o.items) && len(free) < n; chunk *= 4 {
		part := o.items[from:min(from+chunk, len(o.items))]
		ranks, items := make([]int64, len(part)), make([]string, len(part))
		at := make(map[int64]int, len(part))
		for i, it := range part {
			ranks[i], items[i], at[it.rank] = it.rank, it.item, i
		}
		rows, err := r.tx.Query(ctx, r.e.SQL(selectAvailable), r.task, ranks, items, o.snapshot, o.seenUntil, n-len(free))
		if err != nil {
			return nil, false, err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, false, err
		}
		for _, rank := range found {
			free = append(free, part[at[rank]])
		}
		from += len(part)
	}
	return free, len(free) < n, nil
}

// A run that succeeded ends every back-off. Its leftovers are fresh from now on, the end of the query, not from
// its beginning; "now" is the database's clock_timestamp(), since now() stands still since the lock.
const settleRun = `
update getwork.task_state
set failures = 0, failed_until = null, last_error = null, retries = 0, retry_at = null, retry_since = null,
    shelf_run = $2, shelf_from = $3, shelf_cut = $4, fresh_until = clock_timestamp() + $5::bigint * interval '1 microsecond'
where task_id = $1`

const settleRunWithoutShelf = `
update getwork.task_state
set failures = 0, failed_until = null, last_error = null, retries = 0, retry_at = null, retry_since = null,
    shelf_run = null, shelf_from = 1, shelf_cut = false, fresh_until = null
where task_id = $1`

func (o *outcome) settle(next int64, _ bool) (string, []any) {
	if o.freshFor == 0 {
		return settleRunWithoutShelf, nil
	}
	return settleRun, []any{o.run, next, o.result.cut, o.freshFor.micros()}
}

const insertCandidates = `
insert into getwork.candidate (run_id, rank, item, details)
select $1, c.rank, c.item, c.details::json
from unnest($2::bigint[], $3::text[], $4::text[]) as c (rank, item, details)`

// store puts the result on the shelf, before the assign lock is taken: a million rows take their time, and no
// click waits for them. They count only when settle names the run.
func (o *outcome) store(ctx context.Context, e *Engine, tx pgx.Tx) error {
	const chunk = 10_000
	for from := 0; from < len(o.items); from += chunk {
		part := o.items[from:min(from+chunk, len(o.items))]
		ranks, items, details := make([]int64, len(part)), make([]string, len(part)), make([]string, len(part))
		for i, it := range part {
			ranks[i], items[i], details[i] = it.rank, it.item, it.details
		}
		if _, err := tx.Exec(ctx, e.SQL(insertCandidates), o.run, ranks, items, details); err != nil {
			return fmt.Errorf("put the result on the shelf: %w", err)
		}
	}
	return nil
}
