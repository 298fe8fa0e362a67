package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
)

// The limits keep a count within a few seconds, and its answer within what a program can show.
const (
	maxPast    = 7 * 24 * time.Hour
	minStep    = 10 * time.Second
	maxStep    = 24 * time.Hour
	maxSteps   = 1000
	maxBuckets = 20_000 // of all tasks together

	// The defaults.
	historyPast = 6 * time.Hour
	returnsPast = 24 * time.Hour
)

// usualSteps are the steps of a history for which none is given.
var usualSteps = []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, maxStep}

// spanKey is an [assign.Span] that can be compared.
type spanKey struct {
	tasks string
	usual bool  // no beginning is given
	since int64 // in microseconds, the database's precision
	step  time.Duration
	days  bool
	zone  string
}

// keyOf returns a key that is equal for equal spans.
func keyOf(s assign.Span) (k spanKey, err error) {
	for _, name := range s.Tasks {
		if !assign.IsTaskName(name) {
			return k, assign.NoTask(name)
		}
	}
	names := slices.Clone(s.Tasks)
	slices.Sort(names)
	k.tasks, k.step, k.days, k.zone = strings.Join(slices.Compact(names), ","), s.Step, s.Days, s.Zone
	if k.usual = s.Since == nil; !k.usual {
		k.since = s.Since.UnixMicro()
	}
	return k, nil
}

// names returns the tasks' names; nil for all tasks.
func (k spanKey) names() []string {
	if k.tasks == "" {
		return nil
	}
	return strings.Split(k.tasks, ",")
}

// begin returns the span's beginning: as long before now as usually says, if none is given. Its refusals name the field
// "from", as callers know it.
func (k spanKey) begin(now time.Time, usually time.Duration) (time.Time, error) {
	if k.usual {
		return now.Add(-usually), nil
	}
	since := time.UnixMicro(k.since).UTC()
	switch {
	case since.After(now):
		return since, assign.RefuseField("from", "from is a time in the past, not %s; by the database's clock it is %s", assign.TimeText(since), assign.TimeText(now))
	case now.Sub(since) > maxPast+max(k.step, time.Minute): // a little more, for full steps and for the duration of the call
		return since, assign.RefuseField("from", "from is at most 7 days ago, and not %s; a history in steps of 1h or 1d goes back further, and older work is listed by GET /api/v1/work", assign.TimeText(since))
	}
	return since, nil
}

// reportTx begins a transaction that counts over the past. All its statements have one snapshot. They are planned for the
// present values; by index, and BRIN allows only bitmap scans; and for one core, because clicks need the others.
var reportTx = pgx.TxOptions{
	BeginQuery: `begin isolation level repeatable read read only; set local statement_timeout = '10s';
set local enable_seqscan = off; set local enable_bitmapscan = on; set local jit = off; set local max_parallel_workers_per_gather = 0;
set local work_mem = '32MB'; set local plan_cache_mode = force_custom_plan`,
}

// begin runs f in such a transaction.
func (r *Report) begin(ctx context.Context, f func(pgx.Tx) error) error {
	var begun bool
	err := pgx.BeginTxFunc(ctx, r.db, reportTx, func(tx pgx.Tx) error {
		begun = true
		return f(tx)
	})
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pgErr) && pgErr.Code == "57014", begun && ctx.Err() != nil:
		return assign.Refuse(assign.Unavailable, "counting this takes longer than 10 seconds; ask for a shorter span")
	}
	return fmt.Errorf("count what happened: %w", err)
}

const selectTasks = `
select s.task_id, s.name
from getwork.task_state s
where s.deleted_at is null and ($1::text[] is null or s.name = any($1))
order by s.name`

// tasks returns the ids and names of the tasks of those names, in the order of names, and the time by the database's clock.
func (r *Report) tasks(ctx context.Context, tx pgx.Tx, names []string) (ids []int64, found []string, now time.Time, err error) {
	var batch pgx.Batch
	batch.Queue(`select clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	batch.Queue(r.sql(selectTasks), names).Query(func(rows pgx.Rows) error {
		var id int64
		var name string
		_, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error {
			ids, found = append(ids, id), append(found, name)
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, nil, now, err
	}
	for _, name := range names {
		if !slices.Contains(found, name) {
			return nil, nil, now, assign.NoTask(name)
		}
	}
	return ids, found, now.UTC(), nil
}
