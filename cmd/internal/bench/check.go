package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

const (
	selectHeldItems = `
select w.item::bigint
from getwork.work w join getwork.task_state t on t.task_id = w.task_id
where t.name = $1 and w.state = 'held'`

	countPending = `
select count(*)
from getwork.work_requested r join getwork.task_state t on t.task_id = r.task_id
where t.name = $1 and r.state = 'pending'`

	// Of each run: who was served earlier, in an earlier round or by a lower id, has the better items. That is so only
	// where nothing comes back.
	countOutOfOrder = `
select count(*)
from (
  select w.rank, lag(w.rank) over (partition by w.run_id order by r.round_id, r.id, w.rank) as earlier
  from getwork.work w
  join getwork.work_requested r on r.id = w.request_id
  join getwork.task_state t on t.task_id = w.task_id
  where t.name = $1 and w.state = 'held') w
where earlier >= rank`
)

// check fails if what a load was answered breaks a promise: nobody has what another has, everybody was served, the
// better items went to who was served earlier, and the database says the same. items are all that were handed out of
// the task, of which nothing was let go.
func (s *stage) check(ctx context.Context, task string, items []int64) error {
	slices.Sort(items)
	for i := 1; i < len(items); i++ {
		if items[i] == items[i-1] {
			return fmt.Errorf("check: the item %d was handed out twice", items[i])
		}
	}
	rows, err := s.conn.Query(ctx, s.sql(selectHeldItems), task)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	held, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	slices.Sort(held)
	if !slices.Equal(held, items) {
		return fmt.Errorf("check: the answers have %d items, and the database %d, or others", len(items), len(held))
	}
	var pending, misplaced int
	err = errors.Join(s.conn.QueryRow(ctx, s.sql(countPending), task).Scan(&pending),
		s.conn.QueryRow(ctx, s.sql(countOutOfOrder), task).Scan(&misplaced))
	switch {
	case err != nil:
		return fmt.Errorf("check: %w", err)
	case pending > 0:
		return fmt.Errorf("check: %d requests were never answered", pending)
	case misplaced > 0:
		return fmt.Errorf("check: %d items went past somebody who was served earlier", misplaced)
	}
	return nil
}
