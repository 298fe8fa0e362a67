package torture

import (
	"context"
	"fmt"
)

// long is how often each of some items was let go of before the run.
const long = 100_000

// insertClosings inserts an item's closings, a few seconds apart, in each way in which the item can come back. The last
// one completed it, so that it starts over.
const insertClosings = `
insert into getwork.work (task_id, item, slot, user_name, attempt, assigned_at, state, closed_at, closed_by, closed_xid, after, available_at)
select s.task_id, $2, 1, 'past-' || i % 5, 1, closed.at - interval '3 seconds', closed.as, closed.at, 'past', '3'::xid8,
  case closed.as when 'returned' then interval '0' end, case when closed.as in ('returned', 'failed') then closed.at end
from getwork.task_state s
cross join generate_series($3::integer, 1, -1) i
cross join lateral (select clock_timestamp() - i * interval '5 seconds' as at,
  (array['returned', 'completed', 'failed', 'expired', 'reassigned'])[1 + i % 5] as as) closed
where s.name = $1`

// insertPast gives the best items a long history. For the inbox it does so before the items are pushed.
func (s *stage) insertPast(ctx context.Context) error {
	s.o.Log("giving some items a history of %d closings each", long)
	for task, item := range map[string]string{"quick": "quick-001", "shelf": "loan-001", "leased": "lease-001", "inbox": "in-000001"} {
		if err := s.execute(ctx, insertClosings, task, item, long); err != nil {
			return fmt.Errorf("insert the past: %w", err)
		}
	}
	return s.execute(ctx, "vacuum analyze getwork.work")
}

// deletePast deletes the inserted history, so that only the run is judged.
func (s *stage) deletePast(ctx context.Context) error {
	return s.execute(ctx, "delete from getwork.work where closed_by = 'past'")
}
