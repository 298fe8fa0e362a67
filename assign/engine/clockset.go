package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
)

// Only the database's clock counts, and now and then it is set: NTP corrects it, a virtual machine stood still, or another
// server became the primary. A time that was promised to somebody stays as it is, whatever the clock then shows: a lease, an
// item that was put off, the end of lingering. A time that only reminds getwork itself must delay nobody: a back-off, a retry
// delay, a request's look_after, the end of a shelf, or the moment at which an item returns at once. Each of these is at most
// so far ahead of the clock when it is written. One that is further ahead was written before the clock was set back.

const (
	// tooLate is true for a task s in its version v that waits for such a time. A deleted task waits for none, and there may
	// be very many of those. clock.at is now. The longest back-off is 60 s, and the longest retry delay 30 s; a lingering
	// request's look_after is rerun_after or a back-off ahead.
	tooLate = `s.deleted_at is null and (s.failed_until > clock.at + interval '60 seconds' or s.retry_at > clock.at + interval '30 seconds'
    or s.retry_since > clock.at or s.used_at > clock.at or ` + shelfTooLate + `
    or exists (select from getwork.work_requested r where r.task_id = s.task_id and ` + lookTooLate + `))`

	shelfTooLate = `s.fresh_until > clock.at and exists (select from getwork.run u where u.id = s.shelf_run and u.finished_at > clock.at)`
	lookTooLate  = `r.state = 'pending' and r.look_after > clock.at + greatest(v.rerun_after, interval '60 seconds')`

	// These are assign locks, taken in the order of ids like everywhere.
	healTasks = `
with late as materialized (
  select s.task_id, clock.at, ` + shelfTooLate + ` as stale
  from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  cross join (select clock_timestamp() as at offset 0) clock
  where ` + tooLate + `
  order by s.task_id
  for no key update of s
)
update getwork.task_state s
set failed_until = case when s.failed_until > l.at + interval '60 seconds' then l.at else s.failed_until end,
    retry_at = case when s.retry_at > l.at + interval '30 seconds' then l.at else s.retry_at end,
    retry_since = case when s.retry_since > l.at then l.at else s.retry_since end,
    used_at = case when s.used_at > l.at then l.at else s.used_at end,
    fresh_until = case when l.stale then l.at else s.fresh_until end
from late l
where s.task_id = l.task_id
returning s.task_id`

	healRequests = `
with late as materialized (
  select r.id
  from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  join getwork.work_requested r on r.task_id = s.task_id
  cross join (select clock_timestamp() as at offset 0) clock
  where s.task_id = any($1::bigint[]) and ` + lookTooLate + `
  order by r.id
  for update of r
)
update getwork.work_requested r set look_after = clock_timestamp() from late l where r.id = l.id and r.state = 'pending'`

	// Work that was returned for no time, or redriven, is available now; failed work waits from now on. The item of an inbox
	// has the same time if that came from its last work; an item that was put off later keeps its promised time.
	//
	// "any" makes PostgreSQL look the rows up by their ids. It does not know how many are late, and would plan the join alone
	// for a third of all work, and walk through all of it.
	healWork = `
with clock as materialized (select clock_timestamp() as at),
late as materialized (
  select w.id, w.state, clock.at
  from clock cross join getwork.work w
  where w.closed_at > clock.at and w.state = 'returned' and w.after = interval '0' and w.available_at > clock.at
  union all
  select w.id, w.state, clock.at
  from clock cross join getwork.work w
  where w.state = 'never' and w.redriven_by is not null and w.available_at > clock.at
  union all
  select w.id, w.state, clock.at + b.most
  from clock cross join getwork.work w
  join getwork.task_state s using (task_id) join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  cross join lateral (select ` + backOffOf + ` * 1.2 as most) b
  where w.closed_at > clock.at and w.state = 'failed' and w.available_at > clock.at + b.most
), moved as (
  update getwork.work w set available_at = l.at
  from late l
  where w.id = l.id and w.state = l.state and w.id = any(array(select id from late))
  returning w.id, w.task_id, w.item, w.available_at
), due as (
  update getwork.item i set due_at = m.available_at
  from moved m
  where i.task_id = m.task_id and i.item = m.item and i.done_at is null and i.due_at > m.available_at and i.due_at < 'infinity'
    and not exists (select from getwork.work o where o.task_id = m.task_id and o.item = m.item and o.state = 'held' and o.id > m.id)
    and not exists (select from getwork.work o where o.task_id = m.task_id and o.item = m.item and o.state <> 'held' and o.id > m.id)
)
select distinct task_id from moved`
)

// healClock makes everything due that is delayed for longer than it may be, and wakes its tasks.
func (r *rescuer) healClock(ctx context.Context) error {
	var tasks, freed []int64
	err := r.transact(ctx, func(tx pgx.Tx) (err error) {
		if tasks, err = pg.IDs(ctx, tx, r.SQL(healTasks)); err == nil {
			_, err = tx.Exec(ctx, r.SQL(healRequests), tasks)
		}
		return err
	})
	if err == nil {
		err = r.transact(ctx, func(tx pgx.Tx) (err error) {
			freed, err = pg.IDs(ctx, tx, r.SQL(healWork))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("heal a clock that was set back: %w", err)
	}
	if len(tasks) > 0 || len(freed) > 0 {
		r.Log.Warn("the database's clock was set back; what that delayed for too long is due now",
			"tasks", len(tasks), "tasks_with_work", len(freed))
	}
	for _, task := range tasks {
		r.Wake(task)
	}
	for _, task := range freed {
		r.WakeLingering(task)
	}
	return nil
}

// closedLater reports whether some work was closed later than now, because the clock was set back while this node was not
// there.
func (r *rescuer) closedLater(ctx context.Context) (is bool, err error) {
	const closed = `select exists (select from getwork.work w where w.closed_at > (select clock_timestamp()))`
	err = r.transact(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, r.SQL(closed)).Scan(&is) }) // which has it planned to use the index
	return is, err
}
