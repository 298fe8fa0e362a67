package report

import (
	"context"
	"errors"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
)

const (
	maxSums  = 10_000 // steps of a history that the sums answer
	daysPast = 30 * 24 * time.Hour

	// selectDays reads when the days of a zone began, the database's if it is empty.
	selectDays = `
select d at time zone z.name
from (select coalesce(nullif($1, ''), current_setting('TimeZone')) as name) z
cross join lateral generate_series(date_trunc('day', $2::timestamptz at time zone z.name), $3::timestamptz at time zone z.name, interval '1 day') d`

	selectSums = `
select hour, task_id, requests, given, empty, failed, cancelled, runs, runs_failed, assigned, completed, returned, never, failed_work, expired, reassigned, held,
  wait_p50, wait_p90, wait_max, run_p50, run_max
from getwork.task_hour
where hour >= $1 and hour < $2 and task_id = any($3::bigint[])
order by hour`
)

// bySums reports whether the sums of hours answer: for days, and for whole hours of which no rows may be left.
func (k spanKey) bySums(now time.Time) bool {
	return k.days || !k.usual && k.step > 0 && k.step%time.Hour == 0 && now.Sub(time.UnixMicro(k.since)) > maxPast+max(k.step, time.Minute)
}

// readSums fills buckets from the sums of hours, and counts what happened since they were made. A day begins at the full hour of UTC
// in which it does.
func (r *Report) readSums(ctx context.Context, tx pgx.Tx, k spanKey, now time.Time, ids []int64) (*buckets, error) {
	edges, err := r.edges(ctx, tx, k, now)
	if err != nil {
		return nil, err
	}
	if len(edges)*len(ids) > maxBuckets {
		return nil, assign.RefuseField("task", "%d steps of %d tasks are more than %d buckets; name fewer tasks, or ask for longer steps", len(edges), len(ids), maxBuckets)
	}
	b := &buckets{from: edges[0], step: k.step, ids: ids, of: make(map[int64][]assign.Bucket, len(ids))}
	for _, id := range ids {
		all := make([]assign.Bucket, len(edges))
		for i := range all {
			all[i].At = edges[i]
		}
		b.of[id] = all
	}
	add := func(task int64, c *assign.Bucket) {
		i := sort.Search(len(edges), func(i int) bool { return edges[i].After(c.At) }) - 1
		to := &b.of[task][i]
		sum(to, c)
		if i == len(edges)-1 || c.At.Add(time.Hour).Equal(edges[i+1]) {
			to.Held = c.Held
		}
	}
	var counted *time.Time
	if err := tx.QueryRow(ctx, r.sql(selectCounted)).Scan(&counted); err != nil {
		return nil, err
	}
	hour := now.Truncate(time.Hour)
	rest := hour.Add(-maxPast) // from here on it is counted
	if counted != nil && counted.Add(time.Hour).After(rest) {
		rest = counted.UTC().Add(time.Hour)
	}
	if rest.Before(edges[0]) {
		rest = edges[0]
	}
	if rest.After(hour) {
		rest = hour
	}
	rows, err := tx.Query(ctx, r.sql(selectSums), edges[0], rest, ids)
	if err != nil {
		return nil, err
	}
	var c assign.Bucket
	var task int64
	var times [5]*float64
	into := []any{&c.At, &task}
	for _, n := range numbersOf(&c) {
		into = append(into, n)
	}
	for i := range times {
		into = append(into, &times[i])
	}
	_, err = pgx.ForEachRow(rows, into, func() error {
		c.At, c.WaitMS, c.RunMS = c.At.UTC(), nil, nil
		if times[0] != nil && times[1] != nil && times[2] != nil {
			c.WaitMS = &assign.Waits{P50: *times[0], P90: *times[1], Max: *times[2]}
		}
		if times[3] != nil && times[4] != nil {
			c.RunMS = &assign.RunTimes{P50: *times[3], Max: *times[4]}
		}
		add(task, &c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	live := emptyBuckets(rest, time.Hour, int(hour.Sub(rest)/time.Hour)+1, ids)
	if err := live.count(ctx, r.sql, tx); err != nil {
		return nil, err
	}
	b.taken = live.taken
	for _, id := range ids {
		for i := range live.of[id] {
			add(id, &live.of[id][i])
		}
	}
	return b, nil
}

// edges returns when the steps of a span begin.
func (r *Report) edges(ctx context.Context, tx pgx.Tx, k spanKey, now time.Time) (edges []time.Time, err error) {
	from := now.Add(-daysPast)
	if !k.usual {
		from = time.UnixMicro(k.since).UTC()
	}
	switch {
	case from.After(now):
		return nil, assign.RefuseField("from", "from is a time in the past, not %s; by the database's clock it is %s", assign.TimeText(from), assign.TimeText(now))
	case from.Before(now.AddDate(0, -SumsKept, 0).Add(-k.step)):
		return nil, assign.RefuseField("from", "from is at most %d months ago, and not %s", SumsKept, assign.TimeText(from))
	}
	if !k.days {
		for at := from.Truncate(time.Hour); !at.After(now); at = at.Add(k.step) {
			if edges = append(edges, at); len(edges) > maxSums {
				return nil, assign.RefuseField("step", "these are more than %d steps of %s; ask for longer ones, or a later from", maxSums, assign.Duration(k.step))
			}
		}
		return edges, nil
	}
	rows, err := tx.Query(ctx, selectDays, k.zone, from, now)
	if err == nil {
		edges, err = pgx.CollectRows(rows, pgx.RowTo[time.Time])
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "22023" {
		return nil, assign.RefuseField("zone", "zone is a time zone such as Europe/Zurich, not %q", k.zone)
	}
	for i := range edges {
		edges[i] = edges[i].UTC().Truncate(time.Hour)
	}
	return edges, err
}

// sum adds what a step counted to a longer one. Percentiles of it are means of its parts', weighed by their numbers.
func sum(to, c *assign.Bucket) {
	mean := func(a, b float64, m, n int64) float64 { return (a*float64(m) + b*float64(n)) / float64(max(m+n, 1)) }
	switch {
	case c.WaitMS == nil:
	case to.WaitMS == nil:
		to.WaitMS = new(*c.WaitMS)
	default:
		w, m, n := to.WaitMS, to.Requests, c.Requests
		*w = assign.Waits{P50: mean(w.P50, c.WaitMS.P50, m, n), P90: mean(w.P90, c.WaitMS.P90, m, n), Max: max(w.Max, c.WaitMS.Max)}
	}
	switch {
	case c.RunMS == nil:
	case to.RunMS == nil:
		to.RunMS = new(*c.RunMS)
	default:
		*to.RunMS = assign.RunTimes{P50: mean(to.RunMS.P50, c.RunMS.P50, to.Runs, c.Runs), Max: max(to.RunMS.Max, c.RunMS.Max)}
	}
	held, counts := to.Held, numbersOf(c)
	for i, n := range numbersOf(to) {
		*n += *counts[i]
	}
	to.Held = held
}

// numbersOf returns a bucket's numbers, in the order of the columns of task_hour.
func numbersOf(c *assign.Bucket) []*int64 {
	return []*int64{&c.Requests, &c.Given, &c.Empty, &c.Failed, &c.Cancelled, &c.Runs, &c.RunsFailed, &c.Assigned, &c.Completed, &c.Returned, &c.Never,
		&c.FailedWork, &c.Expired, &c.Reassigned, &c.Held}
}
