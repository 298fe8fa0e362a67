package records

import (
	"context"
	"fmt"

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
// the task had then. Other tasks that it refers to have their present names.
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
