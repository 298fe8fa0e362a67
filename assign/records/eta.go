package records

import (
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

const (
	// TimeLeft estimates how long the task's current run (u) will still take. It is null if no run has finished before.
	TimeLeft = `case when s.usual is not null then
    round(extract(epoch from s.usual - greatest(interval '0', least(s.usual, clock_timestamp() - u.started_at))), 3) end::float8`

	// selectOutlook reads the first thousand requests that wait on a task, in their order, up to $2. It also estimates how
	// long a request that no round has read yet will wait: until the current run ends, or until the next one has begun and
	// ended. Nobody knows when a manager resumes a task, or when an item is pushed to an inbox.
	//
	// "between", because with an equality the planner may use the primary key for the order, and walk through the ended
	// requests of years.
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

// outlooks maps each task that some of the requests wait on to the last of those requests.
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

// read gives the waiting requests what the batch found.
func (o outlooks) read(results pgx.BatchResults, requests []assign.Request) error {
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

// foresee sets a pending request's position, and its estimated wait unless it is left lingering.
func foresee(r *assign.Request, first []int64, eta *float64) {
	if place, found := slices.BinarySearch(first, r.ID); found {
		position := int64(place + 1)
		r.Position = &position
	}
	if !r.Left {
		r.EtaSeconds = eta
	}
}
