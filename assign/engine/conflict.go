package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Four eyes: a task names others of which nobody may hold or have completed the same item. What is in force stands
// in task_conflict, a pair for each way. A round of one side reads the other side's work; so that two nodes do not do
// that at the same time for one person and one item, each seeing nothing yet, both sides' assign locks are taken.
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

	// What the task says itself, and what others say of it.
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

	namedByOthers = `
select coalesce(min(s.name), '')
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where $1 = any(v.conflicts_with) and s.deleted_at is null and s.task_id <> $1`
)

// conflictIDs finds the tasks of those names; a name that no task has is refused.
func (ed taskEditor) conflictIDs(ctx context.Context, tx pgx.Tx, names []string) ([]int64, error) {
	ids := []int64{}
	if len(names) == 0 {
		return ids, nil
	}
	rows, err := tx.Query(ctx, ed.SQL(taskIDs), names)
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
		return nil, assign.RefuseField("conflicts_with", "no task %s; name tasks that there are, or none", strings.Join(missing, ", "))
	}
	return ids, nil
}

// lockConflicts takes the assign locks of a task, of those that it conflicts with, and of some that it will.
func (ed taskEditor) lockConflicts(ctx context.Context, tx pgx.Tx, task int64, also []int64) error {
	if _, err := tx.Exec(ctx, ed.SQL(lockAssigns), append([]int64{task}, also...), task); err != nil {
		return fmt.Errorf("take the assign locks: %w", err)
	}
	return nil
}

// setConflicts puts what a task says of its conflicts into force; the locks of both sides are held.
func (ed taskEditor) setConflicts(ctx context.Context, tx pgx.Tx, task int64, others []int64) error {
	if _, err := tx.Exec(ctx, ed.SQL(forgetConflicts), task); err != nil {
		return fmt.Errorf("set conflicts: %w", err)
	}
	if _, err := tx.Exec(ctx, ed.SQL(insertConflicts), task, others); err != nil {
		return fmt.Errorf("set conflicts: %w", err)
	}
	return nil
}

const selectPartners = `select distinct other_id from getwork.task_conflict where task_id = any($1::bigint[])`

// partners are the tasks that some tasks conflict with.
func (e *Engine) partners(ctx context.Context, db rowser, tasks ...int64) ([]int64, error) {
	rows, err := db.Query(ctx, e.SQL(selectPartners), tasks)
	if err != nil {
		return nil, fmt.Errorf("read conflicts: %w", err)
	}
	partners, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read conflicts: %w", err)
	}
	return partners, nil
}

// rowser is a pool or a transaction.
type rowser interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}
