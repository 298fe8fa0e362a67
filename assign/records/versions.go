package records

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

const selectVersions = `
select v.version, v.created_at, v.created_by, v.name, v.paused,
  array(select o.name from getwork.task_state o where o.task_id = any(v.Conflicts_with) and o.deleted_at is null order by o.name),
  ` + SettingsColumns + `
from getwork.task_version v
where v.task_id = $1 and v.version < $2::bigint
order by v.version desc
limit $3`

// Versions reads a task's versions, newest first, starting before the given one (0: with the newest). Each has the name that
// the task had then. Other tasks that it refers to have their present names. A name that no task has is refused with
// [assign.NotFound].
func (rs *Records) Versions(ctx context.Context, task string, before int64, limit int) ([]assign.Version, error) {
	t, err := rs.Task(ctx, task)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = 1 << 31
	}
	return rs.VersionsOf(ctx, t.ID, before, limit)
}

// VersionsOf is [Records.Versions] for a task's id.
func (rs *Records) VersionsOf(ctx context.Context, task, before int64, limit int) ([]assign.Version, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectVersions), task, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	versions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (assign.Version, error) {
		var v assign.Version
		err := row.Scan(append([]any{&v.Version, &v.CreatedAt, &v.CreatedBy, &v.Name, &v.Paused, &v.Conflicts}, IntoSettings(&v.Settings)...)...)
		v.CreatedAt = v.CreatedAt.UTC()
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	return versions, nil
}

const selectTaskLog = `
select version, n, act, at, by
from (
  (select v.version, 0 as n, case v.version when 1 then 'created' else 'changed' end as act, v.created_at as at, v.created_by as by
   from getwork.task_version v
   where v.task_id = $1 and v.version <= $2 and (v.version, 0) < ($2, $3)
   order by v.version desc
   limit $4)
  union all
  (select p.version, p.n, case when p.paused then 'paused' else 'resumed' end, p.at, p.by
   from getwork.task_pause p
   where p.task_id = $1 and (p.version, p.n) < ($2, $3)
   order by p.version desc, p.n desc
   limit $4)
) l
order by version desc, n desc
limit $4`

// TaskLog reads when a task was changed, paused and resumed, and by whom, newest first, starting before an entry's key (0: with
// the newest).
func (rs *Records) TaskLog(ctx context.Context, task string, before int64, limit int) ([]assign.TaskChange, error) {
	t, err := rs.Task(ctx, task)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := rs.db.Query(ctx, rs.sql(selectTaskLog), t.ID, int32(before>>32), int32(min(before&math.MaxUint32, math.MaxInt32)), limit)
	if err != nil {
		return nil, fmt.Errorf("read the task's log: %w", err)
	}
	changes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c assign.TaskChange, err error) {
		err = row.Scan(&c.Version, &c.N, &c.Act, &c.At, &c.By)
		c.At = c.At.UTC()
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the task's log: %w", err)
	}
	return changes, nil
}
