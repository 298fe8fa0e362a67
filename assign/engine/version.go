package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

const selectVersions = `
select v.version, v.created_at, v.created_by, v.name, v.paused,
  array(select o.name from getwork.task_state o where o.task_id = any(v.Conflicts_with) and o.deleted_at is null order by o.name),
  ` + settingsColumns + `
from getwork.task_version v
where v.task_id = $1 and v.version < $2::bigint
order by v.version desc
limit $3`

// Versions reads what a task was, newest first, those before the given version (0: from the newest). Each is shown
// under the name that the task had then; tasks that it names under those that they have now.
func (e *Engine) Versions(ctx context.Context, task string, before int64, limit int) ([]assign.Version, error) {
	t, err := e.Task(ctx, task)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = 1 << 31
	}
	return e.versions(ctx, t.ID, before, limit)
}

func (e *Engine) versions(ctx context.Context, task, before int64, limit int) ([]assign.Version, error) {
	rows, err := e.api.Query(ctx, e.SQL(selectVersions), task, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	versions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (assign.Version, error) {
		var v assign.Version
		err := row.Scan(append([]any{&v.Version, &v.CreatedAt, &v.CreatedBy, &v.Name, &v.Paused, &v.Conflicts}, intoSettings(&v.Settings)...)...)
		v.CreatedAt = v.CreatedAt.UTC()
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	return versions, nil
}

// Restore makes a task as it was in version n, which becomes its newest version. Its name stays, since another task may
// have the old one, and so does whether it is paused; conflicts with tasks that were deleted since are left out. only is
// the version that the caller has seen: if the task is at another, it is refused with [StaleVersion]; 0: whichever it is
// at. [NotFound] if there was no version n.
func (e *Engine) Restore(ctx context.Context, task string, n, only int, by string) (assign.Task, error) {
	for {
		t, err := e.Task(ctx, task)
		if err != nil {
			return assign.Task{}, err
		}
		if only != 0 && only != t.Version {
			return assign.Task{}, assign.Refuse(assign.StaleVersion, "task %q is at version %d, not %d; read it again before you restore one", task, t.Version, only)
		}
		found, err := e.versions(ctx, t.ID, int64(n)+1, 1)
		if err != nil {
			return assign.Task{}, err
		}
		if len(found) == 0 || found[0].Version != n {
			return assign.Task{}, assign.Refuse(assign.NotFound, "task %q has no version %d; it has 1 to %d", task, n, t.Version)
		}
		restored, err := e.UpdateTask(ctx, task, t.Version, by, func(s *assign.Settings) error {
			name, paused := s.Name, s.Paused
			*s = found[0].Settings
			s.Name, s.Paused, s.ConflictsWith = name, paused, found[0].Conflicts
			return nil
		})
		var refusal *assign.Refusal
		if only == 0 && errors.As(err, &refusal) && refusal.Kind == assign.StaleVersion && ctx.Err() == nil {
			continue // somebody changed it since we read it, and the caller did not ask for that version
		}
		return restored, err
	}
}
