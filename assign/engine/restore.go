package engine

import (
	"context"
	"errors"
	"getwork/assign"
)

// Restore makes a task as it was in version n, which becomes its newest version. Its name stays, since another task may
// have the old one, and so does whether it is paused; conflicts with tasks that were deleted since are left out. only is
// the version that the caller has seen: if the task is at another, it is refused with [StaleVersion]; 0: whichever it is
// at. [NotFound] if there was no version n.
func (e *Engine) Restore(ctx context.Context, task string, n, only int, by string) (assign.Task, error) {
	for {
		t, err := e.Records.Task(ctx, task)
		if err != nil {
			return assign.Task{}, err
		}
		if only != 0 && only != t.Version {
			return assign.Task{}, assign.Refuse(assign.StaleVersion, "task %q is at version %d, not %d; read it again before you restore one", task, t.Version, only)
		}
		found, err := e.Records.VersionsOf(ctx, t.ID, int64(n)+1, 1)
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
