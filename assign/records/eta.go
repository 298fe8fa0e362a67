package records

import (
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

const (
	// TimeLeft is about how long the task's run (u) that is under way will still take; null if none has finished before.
	TimeLeft = `case when s.usual is not null then
    round(extract(epoch from s.usual - greatest(interval '0', least(s.usual, clock_timestamp() - u.started_at))), 3) end::float8`

	// Who waits on a task: the first thousand of them, in their order, up to $2. And how long that takes whom no round has
	// read yet: until the run under way is over, or one begins and is over. Nobody knows when a manager resumes, or when
	// something falls into an inbox.
	//
	// "between", because with an equality the planner may take the primary key for the order, and walk through the
	// ended requests of years.
	selectOutlook = `
select array(
    select q.id
    from getwork.work_requested q
    where q.state = 'pending' and q.task_id between $1 and $1 and q.id <= $2
    order by q.task_id, q.id
    limit 1000
  ),
  case
    when s.paused then null
    when u.id is not null then ` + TimeLeft + `
    else round(extract(epoch from s.usual)
      + coalesce(greatest(0, extract(epoch from greatest(s.retry_at, s.failed_until) - clock_timestamp())), 0), 3)::float8
  end
from getwork.task_state s left join getwork.run u on u.task_id = s.task_id and u.state = 'running'
where s.task_id = $1`
)

// outlooks are the tasks that some of the requests wait on, each with the last of those.
type outlooks map[int64]int64

func outlooksOf(requests []assign.Request) outlooks {
	last := outlooks{}
	for i := range requests {
		if r := &requests[i]; r.State == assign.Pending {
			last[r.TaskID] = max(last[r.TaskID], r.ID)
		}
	}
	return last
}

func (o outlooks) queue(rs *Records, batch *pgx.Batch) {
	for _, task := range slices.Sorted(maps.Keys(o)) {
		batch.Queue(rs.sql(selectOutlook), task, o[task])
	}
}

// tell tells those who wait what the batch found.
func (o outlooks) tell(results pgx.BatchResults, requests []assign.Request) error {
	for _, task := range slices.Sorted(maps.Keys(o)) {
		var first []int64
		var eta *float64
		if err := results.QueryRow().Scan(&first, &eta); err != nil {
			return fmt.Errorf("read how long requests will wait: %w", err)
		}
		for i := range requests {
			if r := &requests[i]; r.State == assign.Pending && r.TaskID == task {
				foresee(r, first, eta)
			}
		}
	}
	return nil
}

// foresee tells a pending request its place, and how long it will wait unless it has been left lingering.
func foresee(r *assign.Request, first []int64, eta *float64) {
	if place, found := slices.BinarySearch(first, r.ID); found {
		position := int64(place + 1)
		r.Position = &position
	}
	if !r.Left {
		r.EtaSeconds = eta
	}
}
