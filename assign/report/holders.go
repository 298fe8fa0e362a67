package report

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// byEntry begins a transaction that reads held work by a plain scan of an index of held work. Such a scan marks the entries of
// closed work as dead, so that later scans skip them. A bitmap scan doesn't, and between two vacuums of a long history there
// may be a million such entries.
var byEntry = pgx.TxOptions{
	BeginQuery: `begin isolation level repeatable read read only; set local enable_seqscan = off; set local enable_bitmapscan = off;
set local jit = off; set local max_parallel_workers_per_gather = 0; set local plan_cache_mode = force_custom_plan`,
}

// There is little held work beside the history, so all of it is grouped for each page. While a user holds work of a task, both
// parts of the key only grow, so a caller who reads page by page misses no holder. "is true" is there as in [onlyTasks].
const selectHolders = `
with held as materialized (
  select w.task_id, w.user_name, count(*) as held,
    case when bool_or(w.instance <> '') then count(distinct w.instance) else 0 end as instances,
    min(w.assigned_at) as oldest_at, min(w.lease_expires_at) as lease_expires_at, min(w.id) as first
  from getwork.work w
  where w.state = 'held' and (w.task_id = any($1::bigint[])) is true and ($2 = '' or w.user_name = $2)
  group by w.task_id, w.user_name
)
select h.user_name, h.task_id, h.held, h.instances, h.oldest_at, h.lease_expires_at, h.first,
  (select count(distinct user_name) from held), (select sum(held)::bigint from held)
from held h
where (h.oldest_at, h.first) > ($3::timestamptz, $4::bigint)
order by h.oldest_at, h.first
limit $5`

// Holders returns who holds how much of which task, longest held first, and the total of all pages. It refuses a name that no
// task has with [assign.NotFound].
func (r *Report) Holders(ctx context.Context, f assign.HolderFilter) (holders []assign.Held, total assign.HeldTotal, err error) {
	for _, name := range f.Tasks {
		if !assign.IsTaskName(name) {
			return nil, total, assign.NoTask(name)
		}
	}
	if f.User != "" {
		if err := assign.CheckUser(f.User); err != nil {
			return nil, total, err
		}
	}
	err = pgx.BeginTxFunc(ctx, r.db, byEntry, func(tx pgx.Tx) error {
		ids, names, _, err := r.tasks(ctx, tx, f.Tasks)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, r.sql(selectHolders), ids, f.User, f.After, f.First, f.Limit)
		if err != nil {
			return err
		}
		holders, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (assign.Held, error) {
			var h assign.Held
			var task int64
			err := row.Scan(&h.User, &task, &h.Held, &h.Instances, &h.OldestAt, &h.LeaseExpiresAt, &h.First, &total.Users, &total.Held)
			if err != nil {
				return h, err
			}
			h.Task = names[slices.Index(ids, task)]
			h.OldestAt, h.LeaseExpiresAt = h.OldestAt.UTC(), assign.UTC(h.LeaseExpiresAt)
			return h, nil
		})
		return err
	})
	if err != nil {
		return nil, total, fmt.Errorf("read holders: %w", err)
	}
	return holders, total, nil
}
