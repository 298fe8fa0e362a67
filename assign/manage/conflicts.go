package manage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/engine"
)

// Four eyes: a task names other tasks, and nobody may get an item under it who holds or completed that item under one of
// them. The pairs in force stand in task_conflict, one for each direction. A round of one side reads the other side's work.
// It takes the assign locks of both sides: otherwise two nodes could check one user and one item at the same time, and
// neither would see the other's work.
const (
	taskIDs = `select task_id, name from getwork.task_state where name = any($1::text[]) and deleted_at is null`

	// In the order of ids, like all who take more than one assign lock.
	lockAssigns = `
select s.task_id
from getwork.task_state s
where s.task_id = any($1::bigint[]) or s.task_id in (select c.other_id from getwork.task_conflict c where c.task_id = $2)
order by s.task_id
for no key update`

	forgetConflicts = `delete from getwork.task_conflict where task_id = $1 or other_id = $1`

	// The task's own conflicts, and those that others have with it.
	insertConflicts = `
insert into getwork.task_conflict (task_id, other_id)
select p.a, p.b
from (
  select unnest($2::bigint[]) as other
  union
  select s.task_id
  from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  where $1 = any(v.conflicts_with) and s.deleted_at is null
) n
cross join lateral (values ($1::bigint, n.other), (n.other, $1::bigint)) p (a, b)`
)

// conflictIDs returns the ids of the tasks with those names, with which a task is to conflict. A name that no task has is refused,
// and so is the task's own, which it has until the change gives it another.
func conflictIDs(ctx context.Context, e *engine.Engine, tx pgx.Tx, task int64, names []string) ([]int64, error) {
	ids := []int64{}
	if len(names) == 0 {
		return ids, nil
	}
	rows, err := tx.Query(ctx, e.SQL(taskIDs), names)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	missing := slices.Clone(names)
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var id int64
		var name string
		err := row.Scan(&id, &name)
		ids = append(ids, id)
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == name })
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	if len(missing) > 0 {
		return nil, assign.RefuseField("conflicts_with", "no task %s; name existing tasks, or none", strings.Join(missing, ", "))
	}
	if slices.Contains(ids, task) {
		return nil, assign.RefuseField("conflicts_with", "a task does not conflict with itself")
	}
	return ids, nil
}

// others are the tasks that a task's settings name.
type others struct {
	conflicts []int64
	onward    int64 // of on_complete; 0: none
}

// lockOthers takes the assign locks of a task, of those that it conflicts with and that it will conflict with, and of those that its
// completions may go on to; it returns those that s names. They are read again under the locks: one may have been deleted meanwhile, and
// of two managers who close a circle one is refused.
func lockOthers(ctx context.Context, e *engine.Engine, tx pgx.Tx, task int64, s *assign.Settings) (named others, err error) {
	var chain []int64
	for range 2 {
		if named.conflicts, err = conflictIDs(ctx, e, tx, task, s.ConflictsWith); err != nil {
			return named, err
		}
		if chain, err = chainOf(ctx, e, tx, task, s.OnComplete); err != nil {
			return named, err
		}
		if len(chain) > 0 {
			named.onward = chain[0]
		}
		if err := lockConflicts(ctx, e, tx, task, append(chain, named.conflicts...)); err != nil {
			return named, err
		}
	}
	return named, nil
}

// selectChain follows the tasks to which completions go on. A circle that has been there ends it.
const selectChain = `
with recursive chain as (
  select s.task_id, v.query is null as inbox, v.on_complete, 1 as n
  from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  where s.name = $1 and s.deleted_at is null
  union all
  select s.task_id, v.query is null, v.on_complete, c.n + 1
  from chain c
  join getwork.task_state s on s.task_id = (c.on_complete->>'task_id')::bigint
  join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  where c.n < 100
)
select task_id, inbox from chain order by n`

// chainOf returns the tasks to which completions of the task go on, one after the other. It refuses one that is no inbox, and a chain that
// leads back to the task.
func chainOf(ctx context.Context, e *engine.Engine, tx pgx.Tx, task int64, on *assign.OnComplete) (chain []int64, err error) {
	if on == nil {
		return nil, nil
	}
	rows, err := tx.Query(ctx, e.SQL(selectChain), on.Task)
	var id int64
	var inbox, first bool
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&id, &inbox}, func() error {
			first = first || inbox && len(chain) == 0
			chain = append(chain, id)
			return nil
		})
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read where completions go on to: %w", err)
	case len(chain) == 0:
		return nil, assign.RefuseField("on_complete", "no task %s; name an inbox", on.Task)
	case !first:
		return nil, assign.RefuseField("on_complete", "task %s has a query, which finds its items; name an inbox", on.Task)
	case slices.Contains(chain, task), len(chain) == 100:
		return nil, assign.RefuseField("on_complete", "what task %s completes leads back to this task; name another inbox", on.Task)
	}
	return chain, nil
}

// lockConflicts takes the assign locks of a task, of those that it conflicts with, and of those that it will conflict with.
func lockConflicts(ctx context.Context, e *engine.Engine, tx pgx.Tx, task int64, also []int64) error {
	if _, err := tx.Exec(ctx, e.SQL(lockAssigns), append([]int64{task}, also...), task); err != nil {
		return fmt.Errorf("take the assign locks: %w", err)
	}
	return nil
}

// setConflicts puts a task's conflicts into force; the locks of both sides are held.
func setConflicts(ctx context.Context, e *engine.Engine, tx pgx.Tx, task int64, others []int64) error {
	if _, err := tx.Exec(ctx, e.SQL(forgetConflicts), task); err != nil {
		return fmt.Errorf("set conflicts: %w", err)
	}
	if _, err := tx.Exec(ctx, e.SQL(insertConflicts), task, others); err != nil {
		return fmt.Errorf("set conflicts: %w", err)
	}
	return nil
}
