package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Refresh ahead: while a task is in use, its next run starts before its shelf ends, so that nobody waits for the query. A
// round that writes what it took from a shelf also computes when that should be, and its node sets a timer. Every node also
// looks regularly for shelves whose node is gone. A refresh takes the run lock like any run, so there is never a second run.
// A task is in use if a round has answered a request within its last fresh_for; a refresh that answers nobody does not count.

const (
	// How long the query in force takes, computed when a run finishes: the last five runs. Runs that seem to have taken less
	// than no time, or longer than they may, are left out, because the clock was set meanwhile.
	lastRuns = `(
      select o.finished_at - o.started_at as took
      from (select * from getwork.run where task_id = $1 order by id desc limit 20) o
      join getwork.task_version ov on ov.task_id = o.task_id and ov.version = o.version
      join getwork.task_version v on v.task_id = o.task_id and v.version = s.version and v.query = ov.query
      where o.state = 'finished' and o.finished_at - o.started_at between interval '0' and ov.query_timeout + interval '1 minute'
      order by o.id desc
      limit 5) l`
	settleTimes = `usual = (select percentile_cont(0.5) within group (order by l.took) from ` + lastRuns + `),
    longest = (select max(l.took) from ` + lastRuns + `)`

	// Seconds until the next run should start: early enough to end before the shelf expires or, if it is cut, is used up,
	// even if the run takes twice as long as the longest of the last ones, because it runs while clicks are served. It does
	// not start before half of the shelf's time is over, unless the run takes that long. The shelf's use is estimated from
	// the pace since it was filled, over at least the duration of a run, so that many requests in its first moment count
	// little; the last tenth is a reserve. Null: the task keeps no shelf, or has none; or runs take longer than the shelf
	// lasts, and nobody has used it since the last one, since otherwise each run would be followed by another. A whole shelf
	// holds everything there is, and lasts until it expires.
	refreshIn = `case when v.fresh_for > interval '0' and s.shelf_run is not null
      and (s.longest < v.fresh_for or s.used_at > s.fresh_until - v.fresh_for) then (
      least(extract(epoch from s.fresh_until - clock_timestamp()),
        case when s.shelf_cut then
          (s.shelf_left - s.shelf_size / 10)
          * greatest(extract(epoch from clock_timestamp() - s.fresh_until + v.fresh_for), extract(epoch from s.usual), 0)
          / nullif(s.shelf_size - s.shelf_left, 0)
        end)
      - 0.1 - coalesce(extract(epoch from least(s.longest * 2, greatest(s.longest * 1.25, v.fresh_for / 2))), 0))::float8 end`

	selectRefreshes = `
select s.task_id
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.shelf_run is not null and s.deleted_at is null and not s.paused
  and s.used_at > clock_timestamp() - v.fresh_for and ` + refreshIn + ` <= 0`
)

// refresh is when a node wakes a task whose shelf is about to end.
type refresh struct {
	timer *time.Timer // nil: not set
	at    time.Time   // when it fires
	fired time.Time   // when it last fired
}

// refreshAgain is how long a node waits before it wakes a task again whose refresh it could not start, because another node
// runs it or all run slots are taken.
const refreshAgain = time.Second

// keepFresh sets a timer that wakes the task when its next run should start. It is called after every round, and costs no
// more than a map look-up.
func (r *round) keepFresh() {
	if r.refreshIn != nil {
		r.e.refreshAt(r.task, time.Now().Add(time.Duration(*r.refreshIn*float64(time.Second))))
	}
}

func (e *Engine) refreshAt(task int64, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.base == nil || e.base.Err() != nil || e.MaxRuns < 2 {
		return
	}
	known := e.refreshes[task]
	if known == nil {
		known = &refresh{}
		e.refreshes[task] = known
	}
	if again := known.fired.Add(refreshAgain); at.Before(again) {
		at = again
	}
	if known.timer != nil && !at.Before(known.at) {
		return
	}
	if known.timer != nil {
		known.timer.Stop()
	}
	known.at = at
	known.timer = time.AfterFunc(time.Until(at), func() {
		e.mu.Lock()
		known.timer, known.fired = nil, time.Now()
		e.mu.Unlock()
		e.Wake(task)
	})
}

// refreshAll wakes tasks whose shelves are about to end and which no node has renewed.
func (e *Engine) refreshAll(ctx context.Context) {
	rows, err := e.api.Query(ctx, e.SQL(selectRefreshes))
	var tasks []int64
	if err == nil {
		tasks, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		e.logRescueError("look for shelves to renew", err)
	}
	for _, task := range tasks {
		e.Wake(task)
	}
}
