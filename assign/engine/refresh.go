package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/records"
)

// Refresh ahead: while a task is in use, its next run starts before its shelf ends, so that nobody waits for the query. A
// round that writes what it took from a shelf also computes when that should be, and its node sets a timer. Every node also
// looks regularly for shelves whose node is gone. A refresh takes the run lock like any run, so there is never a second run.
// A task is in use if a round has answered a request within its last fresh_for, or from a shelf that had expired; a refresh
// that answers nobody does not count. One run slot stays free of refreshes, except to replace a shelf that has expired.

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

	// servedStale is true if the shelf was handed out after it had expired: its refresh must follow, however short fresh_for is.
	servedStale = `coalesce(s.used_at > s.fresh_until and s.fresh_until = s.expires_at, false)`

	// inUse is true if the task's shelf is to be renewed, so that nobody waits.
	inUse = `(coalesce(s.used_at > clock_timestamp() - v.fresh_for, false) or ` + servedStale + ` and ` + records.ShelfLasts + `)`

	// renewIn is in how many seconds the shelf's next run should begin: so long before the shelf expires that the longest of the last
	// five runs would fit twice, since the clicks that are served meanwhile may slow the run down; but not before half of its time is
	// over. It is null if the task keeps no shelf, or has none; or if runs take longer than the shelf lasts, and nobody has used it
	// since the last one: otherwise each run would be followed by another. A shelf of a later time is over.
	renewIn = `case
    when s.shelf_run is null or v.fresh_for = interval '0' or s.longest >= v.fresh_for and s.used_at <= s.fresh_until - v.fresh_for then null
    when ` + records.ShelfCame + ` then extract(epoch from s.fresh_until - least(2 * s.longest, v.fresh_for / 2) - clock_timestamp())
    else 0
  end::float8`
)

// refresh is when a node wakes a task whose shelf is about to end. Engine.mu guards its fields.
type refresh struct {
	timer *time.Timer // nil: not set
	at    time.Time   // when it fires
	fired time.Time   // when it last fired
}

// refreshAgain is how long a node waits before it wakes a task again whose refresh it could not start, because another node
// runs it or all run slots are taken.
const refreshAgain = time.Second

// keepFresh sets a timer that wakes the task when its next run should start. It is called after every round, and costs no
// more than a read of a map.
func (e *Engine) keepFresh(r *round) {
	if e.MaxRuns < 2 && !r.state.stale || r.renewIn == nil {
		return
	}
	e.refreshAt(r.task, time.Now().Add(time.Duration(*r.renewIn*float64(time.Second))))
}

// mayRefresh reports whether a run slot stays free for waiting requests if a refresh that is due takes one. If not, the task
// is woken again a little later.
func (e *Engine) mayRefresh(task int64) bool {
	e.mu.Lock()
	may := e.slots.free >= 2
	e.mu.Unlock()
	if !may && e.MaxRuns > 1 {
		e.refreshAt(task, time.Now().Add(refreshAgain))
	}
	return may
}

func (e *Engine) refreshAt(task int64, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.base == nil || e.base.Err() != nil {
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

const selectRefreshes = `
select s.task_id
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.shelf_run is not null and s.deleted_at is null and not s.paused
  and ` + inUse + ` and ` + renewIn + ` <= 0`

// refreshAll wakes tasks whose shelves are about to end and which no node has renewed.
func (e *Engine) refreshAll(ctx context.Context) {
	rows, err := e.DB.Query(ctx, e.SQL(selectRefreshes))
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
