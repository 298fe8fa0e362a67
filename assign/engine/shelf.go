package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/ranking"
)

// shelfFresh tells whether what the run u left on the shelf of task s may be handed out still: in the time that it has, and in
// the life of the cluster that it was made in. In one that was restored from a dump, or is the primary by logical
// replication, transaction ids are others: every closing may look older than the run's snapshot, so that what is done
// would be handed out. A snapshot from the future is of another life, too. The time comes first: it costs least.
const shelfFresh = `coalesce(s.fresh_until > clock_timestamp() and u.cluster = getwork.cluster()
    and coalesce(pg_snapshot_xmax(u.snapshot) <= pg_snapshot_xmax(pg_current_snapshot()), true), false)`

// shelf hands out what the last run left.
type shelf struct{ *round }

func (s shelf) source() plan.Source { return plan.Shelf }
func (s shelf) cut() bool           { return s.state.shelfCut }
func (s shelf) usable() bool        { return s.state.shelfUsable > 0 && (!s.dropped || s.state.shelfTaken) }
func (s shelf) runID() *int64       { return &s.state.shelfRun }

const selectShelf = `
select c.rank, c.item, c.details::text, ` + standingColumns + `
from getwork.candidate c join getwork.run u on u.id = c.run_id` + standing + `
where c.run_id = $3 and c.rank >= $4 and not st.gone
order by c.rank
limit $5`

// take reads the shelf from where it was left: candidates of a lower rank were handed out, or can't be any more.
func (s shelf) take(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	offers, known := r.ahead.shelf(r, n)
	if !known {
		rows, err := r.tx.Query(ctx, r.e.SQL(selectShelf), r.task, s.state.conflicts, s.state.shelfRun, s.state.shelfFrom, n)
		if err == nil {
			offers, err = pgx.CollectRows(rows, scanOffer)
		}
		if err != nil {
			return nil, false, err
		}
	}
	return offers, len(offers) < n, r.recheck(offers)
}

// Recheck takes the places off what does not match any more. It stays on the shelf: it may match again.
func (r *round) recheck(offers []offer) error {
	if r.state.Recheck == "" {
		return nil
	}
	if r.matching.By != r.state.Recheck {
		return errUnchecked
	}
	for i := range offers {
		matches, known := r.matching.Items[offers[i].cand.Item]
		if !known {
			return errUnchecked
		}
		if !matches {
			offers[i].Slots = 0
			r.dropped = true
		}
	}
	return nil
}

// scanOffer reads a rank, an item, its details, and how it stands.
func scanOffer(row pgx.CollectableRow) (o offer, err error) {
	err = scanStanding(row, &o, &o.cand.Rank, &o.cand.Item, &o.cand.Details)
	return o, err
}

const settleShelf = `
update getwork.task_state s
set shelf_from = greatest(shelf_from, $2), fresh_until = case when $3 then clock_timestamp() else fresh_until end,
    shelf_left = greatest(shelf_left - $4, 0), used_at = case when $5 then clock_timestamp() else used_at end
from getwork.task_version v
where s.task_id = $1 and v.task_id = s.task_id and v.version = s.version
returning ` + refreshIn

// settle moves the shelf on; a spent one ends at once, and the next look runs the query.
func (s shelf) settle(after settlement) (string, []any) {
	return settleShelf, []any{after.next, after.spent, after.gone, after.used}
}

// outcome hands out a run's own result in the run's own round.
type outcome struct {
	ranking.Result
	run      int64
	dropped  bool            // some of it did not match any more when it was rechecked
	freshFor assign.Duration // how long the leftovers stay as the shelf; 0: they don't
}

func (o *outcome) cut() bool { return o.Result.Cut || o.unchecked() }

// usable: what does not match any more, and nothing of which is held, is as if it had never been there.
func (o *outcome) usable() bool { return o.Given > o.PassedOver && (!o.dropped || o.Blocked > 0) }

// unchecked reports whether not all of the result was rechecked.
func (o *outcome) unchecked() bool {
	return o.Matching.By != "" && len(o.Matching.Items) < len(o.Items)
}

// source: who finds too little of what was rechecked waits for the shelf that this result becomes, not for another run.
func (o *outcome) source() plan.Source {
	if o.unchecked() && o.freshFor > 0 {
		return plan.Shelf
	}
	return plan.Result
}

func (o *outcome) runID() *int64 { return &o.run }

const selectAvailable = `
select c.rank, ` + standingColumns + `
from unnest($3::bigint[], $4::text[], $5::integer[], $6::text[]) as c (rank, item, slots, exclusive)
cross join (select $7::text::pg_snapshot as snapshot, $8::timestamptz as seen_until) u` + standing + `
where not st.gone
order by c.rank
limit $9`

// take asks which of the items can be handed out still: while the query ran, the old shelf, claims and people
// went on. From the best, in growing chunks, until there are enough.
func (o *outcome) take(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	var free []offer
	chunk := max(256, 2*n)
	for from := 0; from < len(o.Items) && len(free) < n; chunk *= 4 {
		part := o.Items[from:min(from+chunk, len(o.Items))]
		p := columnsOf(part)
		at := make(map[int64]int, len(part))
		for i, it := range part {
			at[it.Rank] = i
		}
		rows, err := r.tx.Query(ctx, r.e.SQL(selectAvailable), r.task, r.state.conflicts, p.ranks, p.items, p.slots, p.exclusives,
			o.Snapshot, o.SeenUntil, n-len(free))
		if err != nil {
			return nil, false, err
		}
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f offer, err error) {
			var rank int64
			if err = scanStanding(row, &f, &rank); err == nil {
				f.cand = part[at[rank]]
				if o.Matching.By != "" && !o.Matching.Items[f.cand.Item] { // it does not match any more, or nobody asked
					f.Slots = 0
					o.dropped = true
				}
			}
			return f, err
		})
		if err != nil {
			return nil, false, err
		}
		free = append(free, found...)
		from += len(part)
	}
	return free, len(free) < n, nil
}

// columns are ranked items as the database takes them.
type columns struct {
	ranks          []int64
	items, details []string
	slots          []int32
	exclusives     []*string
}

func columnsOf(items []ranking.Candidate) (c columns) {
	for _, it := range items {
		c.ranks = append(c.ranks, it.Rank)
		c.items = append(c.items, it.Item)
		c.details = append(c.details, it.Details)
		c.slots = append(c.slots, int32(it.Slots))
		c.exclusives = append(c.exclusives, it.Exclusive)
	}
	return c
}

// A run that succeeded ends every back-off. Its leftovers are fresh from now on, the end of the query, not from
// its beginning; "now" is the database's clock_timestamp(), since now() stands still since the lock.
const (
	settleRun = `
update getwork.task_state s
set failures = 0, failed_until = null, last_error = null, retries = 0, retry_at = null, retry_since = null,
    ` + settleTimes + `, used_at = case when $2 then clock.at else used_at end,
    shelf_run = $3, shelf_from = $4, shelf_cut = $5, shelf_size = $6, shelf_left = $6, fresh_until = clock.at + $7::bigint * interval '1 microsecond'
from getwork.task_version v, (select clock_timestamp() as at offset 0) clock
where s.task_id = $1 and v.task_id = s.task_id and v.version = s.version
returning ` + refreshIn

	settleRunWithoutShelf = `
update getwork.task_state s
set failures = 0, failed_until = null, last_error = null, retries = 0, retry_at = null, retry_since = null,
    ` + settleTimes + `, used_at = case when $2 then clock_timestamp() else used_at end,
    shelf_run = null, shelf_from = 1, shelf_cut = false, shelf_size = 0, shelf_left = 0, fresh_until = null
where task_id = $1`
)

func (o *outcome) settle(after settlement) (string, []any) {
	if o.freshFor == 0 {
		return settleRunWithoutShelf, []any{after.used}
	}
	return settleRun, []any{after.used, o.run, after.next, o.Result.Cut, len(o.Items) - after.gone, o.freshFor}
}

// store puts the result on the shelf, before the assign lock is taken: a million rows take their time, and no
// click waits for them. They count only when settle names the run.
func (o *outcome) store(ctx context.Context, e *Engine, tx pgx.Tx) error {
	schema := strings.Trim(strings.TrimSuffix(e.SQL("getwork.candidate"), ".candidate"), `"`)
	rows := pgx.CopyFromSlice(len(o.Items), func(i int) ([]any, error) {
		it := &o.Items[i]
		return []any{o.run, it.Rank, it.Item, it.Details, int32(it.Slots), it.Exclusive}, nil
	})
	_, err := tx.CopyFrom(ctx, pgx.Identifier{schema, "candidate"}, []string{"run_id", "rank", "item", "details", "slots", "exclusive"}, rows)
	if err != nil {
		return fmt.Errorf("put the result on the shelf: %w", err)
	}
	return nil
}
