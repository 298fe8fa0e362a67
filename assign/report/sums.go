package report

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
)

const (
	// SumsKept is how many months the sums of hours are kept.
	SumsKept = 13

	// recount is how long an hour is counted again: that long a request of it may linger, and what committed late is seen.
	recount = 25 * time.Hour
)

// countTx begins a transaction that counts for the sums. Nobody waits for it.
var countTx = pgx.TxOptions{
	BeginQuery: `begin isolation level repeatable read read only; set local statement_timeout = '60s';
set local enable_seqscan = off; set local enable_bitmapscan = on; set local jit = off; set local max_parallel_workers_per_gather = 0;
set local work_mem = '32MB'; set local plan_cache_mode = force_custom_plan`,
}

const (
	// selectCounted reads until when the hours have been counted.
	selectCounted = `select max(hour) from getwork.task_hour where task_id = 0`

	// The rows are in the order of the key, so that two nodes don't deadlock. Counts are only raised: two nodes may write what they
	// counted at different times in any order, and what --retention has removed since the first count takes nothing away.
	upsertSums = `
insert into getwork.task_hour as h (hour, task_id, requests, given, empty, failed, cancelled, wait_p50, wait_p90, wait_max, runs, runs_failed, run_p50, run_max,
  assigned, completed, returned, never, failed_work, expired, reassigned, held, free)
select u.*
from unnest($1::timestamptz[], $2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[], $7::int[], $8::float8[], $9::float8[], $10::float8[], $11::int[], $12::int[],
  $13::float8[], $14::float8[], $15::int[], $16::int[], $17::int[], $18::int[], $19::int[], $20::int[], $21::int[], $22::int[], $23::int[]) u
order by 1, 2
on conflict (hour, task_id) do update set
  requests = greatest(h.requests, excluded.requests), given = greatest(h.given, excluded.given), empty = greatest(h.empty, excluded.empty),
  failed = greatest(h.failed, excluded.failed), cancelled = greatest(h.cancelled, excluded.cancelled),
  wait_p50 = case when excluded.requests < h.requests then h.wait_p50 else coalesce(excluded.wait_p50, h.wait_p50) end,
  wait_p90 = case when excluded.requests < h.requests then h.wait_p90 else coalesce(excluded.wait_p90, h.wait_p90) end,
  wait_max = greatest(h.wait_max, excluded.wait_max),
  runs = greatest(h.runs, excluded.runs), runs_failed = greatest(h.runs_failed, excluded.runs_failed),
  run_p50 = coalesce(excluded.run_p50, h.run_p50), run_max = greatest(h.run_max, excluded.run_max),
  assigned = greatest(h.assigned, excluded.assigned), completed = greatest(h.completed, excluded.completed), returned = greatest(h.returned, excluded.returned),
  never = greatest(h.never, excluded.never), failed_work = greatest(h.failed_work, excluded.failed_work), expired = greatest(h.expired, excluded.expired),
  reassigned = greatest(h.reassigned, excluded.reassigned), held = greatest(h.held, excluded.held),
  free = coalesce(h.free, excluded.free)`

	removeSums = `delete from getwork.task_hour where hour < $1`
)

// Sum counts the hours that have ended since they were last counted, and the day before again, and removes what is older than
// [SumsKept]. Any node may do so at any time: it writes in one transaction, and the same again changes nothing.
func (r *Report) Sum(ctx context.Context) error {
	var b *buckets
	var hour time.Time
	err := pgx.BeginTxFunc(ctx, r.db, countTx, func(tx pgx.Tx) error {
		ids, _, now, err := r.tasks(ctx, tx, nil)
		if err != nil {
			return err
		}
		var counted *time.Time
		if err := tx.QueryRow(ctx, r.sql(selectCounted)).Scan(&counted); err != nil {
			return err
		}
		hour = now.Truncate(time.Hour)
		from := hour.Add(-maxPast)
		if counted != nil {
			if !counted.Before(hour.Add(-time.Hour)) {
				return nil // another node has done so
			}
			if again := counted.UTC().Add(-recount); again.After(from) {
				from = again
			}
		}
		b = emptyBuckets(from, time.Hour, int(hour.Sub(from)/time.Hour)+1, ids)
		if err := b.count(ctx, r.sql, tx); err != nil {
			return err
		}
		return b.free(ctx, r.sql, tx, func(task, n int64) {
			if all := b.of[task]; len(all) > 1 {
				all[len(all)-2].Left = &n // the hour that has just ended
			}
		})
	})
	if err == nil && b != nil {
		err = pg.Transact(ctx, r.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, r.sql(upsertSums), b.columns(hour)...); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, r.sql(removeSums), hour.AddDate(0, -SumsKept, 0))
			return err
		})
	}
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("count the hours: %w", err))
	}
	return nil
}

// columns returns the arguments of upsertSums: the buckets in which something happened, before the hour that has not ended.
func (b *buckets) columns(until time.Time) []any {
	hours, tasks := []time.Time{until.Add(-time.Hour)}, []int64{0}
	numbers, times := make([][]int64, 15), make([][]*float64, 5)
	var free []*int64
	add := func(c *assign.Bucket) {
		for i, n := range numbersOf(c) {
			numbers[i] = append(numbers[i], *n)
		}
		var w [5]*float64
		if c.WaitMS != nil {
			w[0], w[1], w[2] = &c.WaitMS.P50, &c.WaitMS.P90, &c.WaitMS.Max
		}
		if c.RunMS != nil {
			w[3], w[4] = &c.RunMS.P50, &c.RunMS.Max
		}
		for i := range w {
			times[i] = append(times[i], w[i])
		}
		free = append(free, c.Left)
	}
	add(&assign.Bucket{})
	for id, all := range b.of {
		for i := range all {
			if c := &all[i]; c.At.Before(until) && (*c != assign.Bucket{At: c.At}) {
				hours, tasks = append(hours, c.At), append(tasks, id)
				add(c)
			}
		}
	}
	args := []any{hours, tasks}
	for i := range 5 {
		args = append(args, numbers[i])
	}
	for i := range 3 {
		args = append(args, times[i])
	}
	args = append(args, numbers[5], numbers[6], times[3], times[4])
	for i := 7; i < 15; i++ {
		args = append(args, numbers[i])
	}
	return append(args, free)
}
