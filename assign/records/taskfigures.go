package records

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// TaskFigure is what /metrics shows of a task that is not deleted.
type TaskFigure struct {
	ID      int64
	Name    string
	Paused  bool
	Waiting int     // pending requests, with lingering ones
	Oldest  float64 // seconds for which the oldest request has waited, without lingering ones for which a round found nothing; 0: paused
	Held    int     // work rows
	Shelf   int     // candidates of a shelf that is handed out, up to 100,000; of an inbox, items that can be handed out, up to 10,000
	Usual   float64 // seconds that a run of its query usually takes; 0: not known
}

// A lingering request for which a round found nothing has a reason, also after a change of the task has ended its look_after.
// Inboxes are counted up to 10,000: all tasks are read, and a scrape waits for a second at most.
const selectTaskFigures = `
select s.task_id, s.name, s.paused, r.waiting, r.oldest,
  (select count(*) from getwork.work w where w.task_id = s.task_id and w.state = 'held'),
  ` + readyItems + `10000` + orShelf + `,
  coalesce(extract(epoch from s.usual), 0)::float8
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
cross join lateral (
  select count(*) as waiting,
    coalesce(extract(epoch from clock_timestamp() - min(r.created_at) filter (where r.look_after is null and r.reason is null and not s.paused)), 0)::float8 as oldest
  from getwork.work_requested r
  where r.task_id = s.task_id and r.state = 'pending'
) r
where s.deleted_at is null
order by s.name`

// TaskFigures reads the figures of all tasks, ordered by name.
func (rs *Records) TaskFigures(ctx context.Context) ([]TaskFigure, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectTaskFigures))
	if err != nil {
		return nil, fmt.Errorf("read the tasks' figures: %w", err)
	}
	figures, err := pgx.CollectRows(rows, pgx.RowToStructByPos[TaskFigure])
	if err != nil {
		return nil, fmt.Errorf("read the tasks' figures: %w", err)
	}
	return figures, nil
}
