package stage

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
where t.name = $1 and w.state = 'held'
order by 1`

	// CountPending counts a task's waiting requests.
	CountPending = `
select count(*)
from getwork.work_requested r join getwork.task_state t on t.task_id = r.task_id
where t.name = $1 and r.state = 'pending'`

	// For each run: requests of an earlier round, or with a lower id, have the better items. That holds only if nothing
	// comes back.
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

// Check returns an error if the items that were handed out of a task break a promise: no item is given twice, everybody
// is served, earlier requests have the better items, and the database agrees. Users must be closed before, and must not
// let go of items.
func (s *Stage) Check(ctx context.Context, task string) error {
	items := s.Given[task]
	slices.Sort(items)
	for i := 1; i < len(items); i++ {
		if items[i] == items[i-1] {
			return fmt.Errorf("check: the item %d was handed out twice", items[i])
		}
	}
	rows, err := s.Conn.Query(ctx, s.SQL(selectHeldItems), task)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	held, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if !slices.Equal(held, items) {
		return fmt.Errorf("check: the answers have %d items, and the database %d, or others", len(items), len(held))
	}
	var pending, misplaced int
	err = errors.Join(s.Conn.QueryRow(ctx, s.SQL(CountPending), task).Scan(&pending),
		s.Conn.QueryRow(ctx, s.SQL(countOutOfOrder), task).Scan(&misplaced))
	switch {
	case err != nil:
		return fmt.Errorf("check: %w", err)
	case pending > 0:
		return fmt.Errorf("check: %d requests were never answered", pending)
	case misplaced > 0:
		return fmt.Errorf("check: %d items went past an earlier request", misplaced)
	}
	return nil
}
