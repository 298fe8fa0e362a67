package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
)

// runResult hands out a run's result in the run's own round.
type runResult struct {
	ranking.Result
	run      int64
	dropped  bool            // some items did not match any more when they were rechecked
	ranked   *time.Time      // see rankedAt
	freshFor assign.Duration // how long the leftovers stay as the shelf; 0: not at all
	since    int64           // work with a higher id was begun after the run
	from     int64           // items of a lower rank are gone
}

const selectAvailable = `
select c.rank, ` + availabilityColumns + `
from unnest($3::bigint[], $4::text[], $5::integer[], $6::text[]) as c (rank, item, slots, exclusive)
cross join (select $7::text::pg_snapshot as snapshot, $8::timestamptz as seen_until) u` + availability + `
where not st.gone
order by c.rank
limit $9`

func (o *runResult) cut() bool { return o.Cut || o.unchecked() }

// usable ignores items that no longer match and are not held, as if the query had never returned them. What was not rechecked may
// match.
func (o *runResult) usable() bool {
	return o.Given > o.PassedOver && (!o.dropped || o.Blocked > 0 || o.unchecked())
}

// unchecked reports whether part of the result was not rechecked.
func (o *runResult) unchecked() bool {
	return o.Matching.By != "" && len(o.Matching.Items) < len(o.Items)
}

// source is plan.Shelf if part of the result was not rechecked: a request that gets too little then waits for the shelf that
// this result becomes, not for another run.
func (o *runResult) source() plan.Source {
	if o.unchecked() && o.freshFor > 0 {
		return plan.Shelf
	}
	return plan.Result
}

func (o *runResult) used() bool { return false }

func (o *runResult) stale() bool { return false }

func (o *runResult) runID() *int64 { return &o.run }

func (o *runResult) rankedAt() *time.Time { return o.ranked }

// take reads which of the items can still be handed out: while the query ran, the old shelf, claims and users went on. It
// begins with the best, in growing chunks, until there are enough.
func (o *runResult) take(ctx context.Context, r *round, n int) ([]offer, bool, error) {
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
			if err = scanAvailability(row, &f, &rank); err == nil {
				f.cand = part[at[rank]]
				if o.Matching.By != "" && !o.Matching.Items[f.cand.Item] { // it no longer matches, or was not rechecked
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

func (o *runResult) settle(after settlement) (string, []any) {
	if o.freshFor == 0 {
		return settleRunWithoutShelf, []any{after.used}
	}
	return settleRun, []any{after.used, o.run, max(after.next, o.from), o.Cut, len(o.Items) - after.gone, o.freshFor}
}

// columns holds ranked items as the database takes them.
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

// A run that succeeded ends every back-off. Its leftovers are fresh from the end of the query on, not from its beginning;
// "now" is the database's clock_timestamp(), since now() has stood still since the lock.
const (
	settleRun = `
update getwork.task_state s
set failures = 0, failed_until = null, last_error = null, retries = 0, retry_at = null, retry_since = null,
    ` + settleTimes + `, used_at = case when $2 then clock.at else used_at end,
    shelf_run = $3, shelf_from = $4, shelf_cut = $5, shelf_size = $6, shelf_left = $6,
    fresh_until = clock.at + $7::bigint * interval '1 microsecond', expires_at = clock.at + $7::bigint * interval '1 microsecond'
from getwork.task_version v, (select clock_timestamp() as at offset 0) clock
where s.task_id = $1 and v.task_id = s.task_id and v.version = s.version
returning ` + shelfLife

	settleRunWithoutShelf = `
update getwork.task_state s
set failures = 0, failed_until = null, last_error = null, retries = 0, retry_at = null, retry_since = null,
    ` + settleTimes + `, used_at = case when $2 then clock_timestamp() else used_at end,
    shelf_run = null, shelf_from = 1, shelf_cut = false, shelf_size = 0, shelf_left = 0, fresh_until = null, expires_at = null
where task_id = $1`
)

// quicklyRead is how many items are read or looked up without anybody noticing.
const quicklyRead = 1000

const (
	// selectHandedOut selects the items that were handed out since the run began, and that it can't hand out therefore: see gone in
	// availabilityBase. They are read by their ids, among those of all tasks. The limit bounds the node's memory; rounds look up the rest.
	selectHandedOut = `
select w.item
from getwork.work w
where w.task_id + 0 = $1 and w.id > $2
  and (w.state in ('held', 'never', 'returned', 'failed') and ` + records.Blocks + ` or coalesce(
    not pg_visible_in_snapshot(w.closed_xid, $3::text::pg_snapshot) and w.closed_xid < pg_snapshot_xmax(pg_current_snapshot())
    or w.closed_at > $4, false))
limit 1000000`

	unshelve = `delete from getwork.candidate where run_id = $1 and rank = any($2)`

	// insertPlaces makes the items of a long shelf findable by their keys; getwork.shelved reads all of a short one.
	insertPlaces = `
insert into getwork.candidate_place (run_id, bucket, ranks)
select c.run_id, getwork.candidate_bucket(c.item), array_agg(c.rank)
from getwork.candidate c
where c.run_id = $1
group by 1, 2`
)

// dropHandedOut leaves out what was handed out since the run began, and returns its ranks. In a minute of a busy shelf that may
// be a hundred thousand items. Otherwise the first rounds from the new shelf look up each of them under the assign lock, and
// every click waits for seconds. It needs no lock: an item that is gone can't be handed out from this run later either.
func (o *runResult) dropHandedOut(ctx context.Context, e *Engine, tx pgx.Tx, task int64) (ranks []int64, err error) {
	rows, err := tx.Query(ctx, e.SQL(selectHandedOut), pgx.QueryExecModeExec, task, o.since, o.Snapshot, o.SeenUntil)
	gone := map[string]bool{}
	if err == nil {
		var item string
		_, err = pgx.ForEachRow(rows, []any{&item}, func() error { gone[item] = true; return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("look for what was handed out: %w", err)
	}
	o.Items = slices.DeleteFunc(o.Items, func(it ranking.Candidate) bool {
		if it.Slots != 1 || !gone[it.Item] {
			return false
		}
		delete(o.Matching.Items, it.Item)
		ranks = append(ranks, it.Rank)
		return true
	})
	return ranks, nil
}

// shelve stores the result. Clicks go on meanwhile, so it looks twice for what they took.
func (o *runResult) shelve(ctx context.Context, e *Engine, tx pgx.Tx, task int64) error {
	long := len(o.Items) > quicklyRead
	if long {
		if _, err := o.dropHandedOut(ctx, e, tx, task); err != nil {
			return err
		}
	}
	if err := o.store(ctx, e, tx); err != nil {
		return err
	}
	if long {
		ranks, err := o.dropHandedOut(ctx, e, tx, task)
		if err == nil {
			_, err = tx.Exec(ctx, e.SQL(unshelve), pgx.QueryExecModeExec, o.run, ranks)
		}
		if err != nil {
			return fmt.Errorf("take off the shelf what is gone: %w", err)
		}
		if _, err := tx.Exec(ctx, e.SQL(insertPlaces), pgx.QueryExecModeExec, o.run); err != nil {
			return fmt.Errorf("note the places on the shelf: %w", err)
		}
	}
	if len(o.Items) > 0 {
		o.from = o.Items[0].Rank
	}
	return nil
}

// store puts the result on the shelf before the assign lock is taken: a million rows take their time, and no click waits for
// them. They count only when settle names the run.
func (o *runResult) store(ctx context.Context, e *Engine, tx pgx.Tx) error {
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
