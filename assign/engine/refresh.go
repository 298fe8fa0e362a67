package engine

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/plan"
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
      select o.finished_at - o.started_at as took, o.ahead
      from (select * from getwork.run where task_id = $1 order by id desc limit 20) o
      join getwork.task_version ov on ov.task_id = o.task_id and ov.version = o.version
      join getwork.task_version v on v.task_id = o.task_id and v.version = s.version and v.query = ov.query
      where o.state = 'finished' and o.finished_at - o.started_at between interval '0' and ov.query_timeout + interval '1 minute'
      order by o.id desc
      limit 5) l`
	settleTimes = `usual = (select percentile_cont(0.5) within group (order by l.took) from ` + lastRuns + `),
    longest = (select max(l.took) from ` + lastRuns + `),
    measured = coalesce((select bool_or(l.ahead) from ` + lastRuns + `), false)`

	// servedStale is true if the shelf was handed out after it had expired: its refresh must follow, however short fresh_for is.
	servedStale = `coalesce(s.used_at > s.fresh_until and s.fresh_until = s.expires_at, false)`

	// inUse is true if the task's shelf is to be renewed, so that nobody waits.
	inUse = `(coalesce(s.used_at > clock_timestamp() - v.fresh_for, false) or ` + servedStale + ` and ` + records.ShelfLasts + `)`

	// What [plan.RefreshIn] asks of a shelf. The first column is null if the task keeps no shelf, or has none; or if runs take
	// longer than the shelf lasts, and nobody has used it since the last one, since otherwise each run would be followed by
	// another. The time until a cut shelf is used up is estimated from the pace since it was filled, over at least the duration
	// of a run, so that many requests in its first moment count little; the last tenth is a reserve. A whole shelf holds
	// everything there is, and lasts until it expires.
	shelfLife = `case when s.shelf_run is not null and v.fresh_for > interval '0'
    and (s.longest < v.fresh_for or s.used_at > s.fresh_until - v.fresh_for) then extract(epoch from v.fresh_for) end::float8,
  extract(epoch from s.fresh_until - clock_timestamp())::float8,
  case when s.shelf_cut then
    (s.shelf_left - s.shelf_size / 10)
    * greatest(extract(epoch from clock_timestamp() - s.fresh_until + v.fresh_for), extract(epoch from s.usual), 0)
    / nullif(s.shelf_size - s.shelf_left, 0)
  end::float8,
  coalesce(extract(epoch from s.longest), 0)::float8, s.measured`

	selectRefreshes = `
select s.task_id, ` + shelfLife + `
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.shelf_run is not null and s.deleted_at is null and not s.paused
  and ` + inUse
)

// shelfScan reads shelfLife.
type shelfScan struct {
	freshFor, expires *float64
	life              plan.ShelfLife
}

func (s *shelfScan) into() []any {
	return []any{&s.freshFor, &s.expires, &s.life.UsedUp, &s.life.Longest, &s.life.Beside}
}

// refreshIn returns how long from now the shelf's next run should begin; known is false if the shelf is not renewed.
func (e refresher) refreshIn(s *shelfScan) (in time.Duration, known bool) {
	if s == nil || s.freshFor == nil || s.expires == nil {
		return 0, false
	}
	life := s.life
	life.FreshFor, life.Expires = *s.freshFor, *s.expires
	e.mu.Lock()
	life.SlotWait = e.slotWaits.longest().Seconds()
	e.mu.Unlock()
	return time.Duration(plan.RefreshIn(life) * float64(time.Second)), true
}

// refresher starts runs ahead of need.
type refresher struct{ *Engine }

// refresh is when a node wakes a task whose shelf is about to end. Engine.mu guards its fields.
type refresh struct {
	timer *time.Timer // nil: not set
	at    time.Time   // when it fires
	fired time.Time   // when it last fired
	due   time.Time   // since when a refresh has waited for a run slot; zero: none waits
}

// slotWaits are how long this node's last refreshes, of any task, waited for a run slot.
type slotWaits struct {
	last [5]time.Duration
	next int
}

func (w *slotWaits) add(d time.Duration) {
	w.last[w.next] = d
	w.next = (w.next + 1) % len(w.last)
}

func (w *slotWaits) longest() time.Duration { return slices.Max(w.last[:]) }

// refreshAgain is how long a node waits before it wakes a task again whose refresh it could not start, because another node
// runs it or all run slots are taken.
const refreshAgain = time.Second

// keepFresh sets a timer that wakes the task when its next run should start. It is called after every round, and costs no
// more than a map look-up.
func (e refresher) keepFresh(r *round) {
	if e.MaxRuns < 2 && !r.state.stale {
		return
	}
	if in, known := e.refreshIn(r.shelf); known {
		e.refreshAt(r.task, time.Now().Add(in))
	}
}

// mayRefresh reports whether a run slot stays free for waiting requests if a refresh that is due takes one. If not, the task
// is woken again a little later, and how long that goes on makes the next refreshes begin earlier.
func (e refresher) mayRefresh(task int64) bool {
	now := time.Now()
	e.mu.Lock()
	known := e.refreshes[task]
	if known == nil {
		known = &refresh{}
		e.refreshes[task] = known
	}
	may := e.slots.free >= 2
	switch {
	case may && known.due.IsZero():
		e.slotWaits.add(0)
	case may:
		e.slotWaits.add(now.Sub(known.due))
		known.due = time.Time{}
	case known.due.IsZero():
		known.due = now
	}
	e.mu.Unlock()
	if !may && e.MaxRuns > 1 {
		e.refreshAt(task, now.Add(refreshAgain))
	}
	return may
}

// noRefresh forgets that a refresh of the task waits for a run slot: another node has done it, or it is not due any more.
func (e refresher) noRefresh(task int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.refreshes[task]; known != nil {
		known.due = time.Time{}
	}
}

func (e refresher) refreshAt(task int64, at time.Time) {
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

// refreshAll wakes tasks whose shelves are about to end and which no node has renewed.
func (e refresher) refreshAll(ctx context.Context) {
	rows, err := e.api.Query(ctx, e.SQL(selectRefreshes))
	var tasks []int64
	if err == nil {
		var task int64
		var shelf shelfScan
		_, err = pgx.ForEachRow(rows, append([]any{&task}, shelf.into()...), func() error {
			if in, known := e.refreshIn(&shelf); known && in <= 0 {
				tasks = append(tasks, task)
			}
			return nil
		})
	}
	if err != nil {
		e.logRescueError("look for shelves to renew", err)
	}
	for _, task := range tasks {
		e.Wake(task)
	}
}
