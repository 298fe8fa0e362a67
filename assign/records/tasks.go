package records

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

const selectTasks = `
select s.task_id, s.name, s.paused, s.version,
  (select count(*) from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending'),
  held.n,
  ` + onShelf + `,
  (select u.started_at from getwork.run u where u.task_id = s.task_id and u.state = 'running'),
  round(extract(epoch from s.usual), 3)::float8, s.failures, s.last_error,
  coalesce((select r.id from getwork.work_requested r where r.task_id between s.task_id and s.task_id and r.state = 'pending' order by r.task_id desc, r.id desc limit 1), 0),
  coalesce(held.newest, 0),
  ` + SettingsColumns + `
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
cross join lateral (select count(*) as n, max(w.id + 0) as newest from getwork.work w where w.task_id = s.task_id and w.state = 'held') held
where s.deleted_at is null and ($1::text is null or s.name = $1) and ($2::bigint[] is null or s.task_id = any($2))
order by v.position, s.name`

// onShelf is what the task s, in its version v, can hand out without a run, up to 100,000: followed tasks are read several times a
// second, and counting a million rows each time would delay what others are told.
//
// A shelf is not counted, because many tasks may have a long one. What rounds have counted may be too much, since they don't count what
// was claimed, or handed out while the run went on. There are no more than there are ranks from shelf_from on, so that a shelf that is
// used up has 0.
const (
	onShelf    = `case when v.query is null and s.task_id = any($3::bigint[]) then -1 else ` + readyItems + `100000` + orShelf + ` end`
	readyItems = `case when v.query is null then
    (select count(*) from (select from getwork.item i where i.task_id = s.task_id and i.due_at is null and i.done_at is null limit `
	orShelf = `) ready)
  when ` + ShelfLasts + ` then
    greatest(least(s.shelf_left, 1 - s.shelf_from + (select c.rank from getwork.candidate c where c.run_id = s.shelf_run order by c.rank desc limit 1), 100000), 0)
  else 0 end`
)

// ShelfLasts is true if the shelf of the task s, in its version v, has not expired, or may go on serving after that while its
// refresh runs. A shelf that has ended early may not: its fresh_until is not when it would have expired.
const ShelfLasts = `coalesce(s.fresh_until + case when s.fresh_until = s.expires_at then v.stale_for else interval '0' end
    > clock_timestamp(), false)`

// SomeTasks reads the tasks with that name or those ids; nil: all. Deleted tasks, and names and ids that no task has, are left out.
// The ready items of the inboxes with the ids in uncounted are not counted: their Shelf is -1.
func (rs *Records) SomeTasks(ctx context.Context, name *string, ids, uncounted []int64) ([]assign.Task, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectTasks), name, ids, uncounted)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	tasks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (assign.Task, error) {
		var t assign.Task
		err := row.Scan(append([]any{&t.ID, &t.Name, &t.Paused, &t.Version, &t.Waiting, &t.Held, &t.Shelf, &t.RunningSince, &t.UsualSeconds, &t.Failures, &t.LastError, &t.Newest[0], &t.Newest[1]}, IntoSettings(&t.Settings)...)...)
		t.RunningSince = assign.UTC(t.RunningSince)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	return tasks, nil
}

// Tasks reads all tasks, ordered by position, those without one last and by name. All pages ask at about the same time when the
// list has changed, so callers share one result and must not change it.
func (rs *Records) Tasks(ctx context.Context) ([]assign.Task, error) {
	return rs.lists.Ask(ctx, struct{}{})
}

// Queued returns the number of callers of [Records.Tasks] who wait for a read that has not begun.
func (rs *Records) Queued() int { return rs.lists.Queued() }

// list reads all tasks once for all callers.
func (rs *Records) list(ctx context.Context, asked []struct{}) ([][]assign.Task, error) {
	tasks, err := rs.SomeTasks(ctx, nil, nil, nil)
	return slices.Repeat([][]assign.Task{tasks}, len(asked)), err
}

// Task reads the task of that name. A name that no task has is refused with [assign.NotFound].
func (rs *Records) Task(ctx context.Context, name string) (assign.Task, error) {
	tasks, err := rs.SomeTasks(ctx, &name, nil, nil)
	if err != nil {
		return assign.Task{}, err
	}
	if len(tasks) == 0 {
		return assign.Task{}, assign.NoTask(name)
	}
	return tasks[0], nil
}

const selectByName = `
select s.task_id, s.name, s.paused, ` + SettingsColumns + `
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.name = $1 and s.deleted_at is null`

// Find reads a task's id and settings, without the counts of [Records.Task]. A user who may not see the task is refused as if
// it did not exist.
func (rs *Records) Find(ctx context.Context, name string, by assign.Who) (id int64, s assign.Settings, err error) {
	err = rs.db.QueryRow(ctx, rs.sql(selectByName), name).Scan(append([]any{&id, &s.Name, &s.Paused}, IntoSettings(&s)...)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, s, assign.NoTask(name)
	}
	if err != nil {
		return 0, s, fmt.Errorf("read the task: %w", err)
	}
	if !by.May(s.Groups) {
		return 0, s, assign.NoTask(name)
	}
	return id, s, nil
}

// SettingsColumns are the columns of task_version v that make a task's settings; see [IntoSettings].
const SettingsColumns = `v.title, v.description, coalesce(v.query, ''),
  (extract(epoch from v.query_timeout) * 1000000)::bigint, (extract(epoch from v.fresh_for) * 1000000)::bigint,
  (extract(epoch from v.stale_for) * 1000000)::bigint,
  coalesce(v.recheck, ''), v.max_candidates, v.max_request, v.max_open,
  (extract(epoch from v.lease) * 1000000)::bigint, v.slots, v.max_attempts, (extract(epoch from v.backoff) * 1000000)::bigint,
  (extract(epoch from v.rerun_after) * 1000000)::bigint,
  array(select o.name from getwork.task_state o where o.task_id = any(v.conflicts_with) order by o.name), v.groups, v.position, v.display`

// IntoSettings returns the targets for a scan of SettingsColumns.
func IntoSettings(s *assign.Settings) []any {
	return []any{&s.Title, &s.Description, &s.Query, &s.QueryTimeout, &s.FreshFor, &s.StaleFor, &s.Recheck, &s.MaxCandidates, &s.MaxRequest, &s.MaxOpen,
		&s.Lease, &s.Slots, &s.MaxAttempts, &s.Backoff, &s.RerunAfter, &s.ConflictsWith, &s.Groups, &s.Position, &s.Display}
}
