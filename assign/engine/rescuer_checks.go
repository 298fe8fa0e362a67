package engine

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// A backend whose client froze while it received a large result waits for the client, with the run lock. No time-out of
// PostgreSQL's ends that: over TCP tcp_user_timeout does, over a Unix socket nothing. If the clock was set back, no time-out
// works for that long. The backend still belongs to the run if its transaction is older than the run's row. A backend that
// waits for a standby is left alone; see pg's commitGuard.
const (
	selectRunning = `
select u.id, (extract(epoch from v.query_timeout) * 1000000)::bigint
from getwork.run u
join getwork.task_version v on v.task_id = u.task_id and v.version = u.version
where u.state = 'running'`

	endStuckBackends = `
select u.task_id, u.id, pg_terminate_backend(a.pid)
from getwork.run u
join pg_stat_activity a on a.pid = u.backend and a.datname = current_database() and a.xact_start < u.started_at
  and a.wait_event is distinct from 'SyncRep'
where u.state = 'running' and u.id = any($1::bigint[])`
)

// A run that died with its node ends when its task is run again. If no request waits for it any more it ends here, because
// otherwise all nodes would look closely for ever. A session that gets the run lock knows that the run is dead.
const (
	selectDeadRuns = `
select u.id
from getwork.run u
where u.state = 'running' and u.started_at not between clock_timestamp() - interval '1 minute' and clock_timestamp()
  and not exists (
    select from pg_stat_activity a
    where a.pid = u.backend and a.datname = current_database() and a.xact_start < u.started_at)`

	endDeadRuns = `
with dead as materialized (
  select u.id
  from getwork.run u join getwork.task t on t.id = u.task_id
  where u.state = 'running' and u.id = any($1::bigint[])
  for no key update of t skip locked
)
update getwork.run u set state = 'lost', finished_at = clock_timestamp() from dead where u.id = dead.id and u.state = 'running'`
)

// endDead ends runs whose locks this node has found without a holder for LookEvery. Between the end of the lock and the
// update of the row, their node may be recording why it gave them up. gone has the times by this node's clock.
func (r *rescuer) endDead(ctx context.Context) {
	rows, err := r.api.Query(ctx, r.SQL(selectDeadRuns))
	var dead []int64
	if err == nil {
		dead, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		r.logRescueError("look for runs that died", err)
		return
	}
	before := maps.Clone(r.gone)
	clear(r.gone)
	var over []int64
	for _, run := range dead {
		since, known := before[run]
		if !known {
			since = time.Now()
		}
		r.gone[run] = since
		if time.Since(since) >= r.LookEvery {
			over = append(over, run)
		}
	}
	if len(over) == 0 {
		return
	}
	tag, err := r.write(ctx, endDeadRuns, over)
	if err != nil {
		r.logRescueError("end runs that died", err)
		return
	}
	r.RunEnds[RunLost].n.Add(tag.RowsAffected())
}

// stuckAfter is how long after its query_timeout a run counts as stuck.
const stuckAfter = time.Minute

// endStuck ends runs that should have ended a minute ago. running has when this node first saw each, by its own clock,
// because the database's clock, by which they began, may have been set meanwhile.
func (r *rescuer) endStuck(ctx context.Context) {
	stuck, err := r.stuck(ctx)
	if err != nil {
		r.logRescueError("look for stuck runs", err)
	}
	if err != nil || len(stuck) == 0 {
		return
	}
	rows, err := r.api.Query(ctx, r.SQL(endStuckBackends), stuck)
	if err != nil {
		r.logRescueError("end stuck runs", err)
		return
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var task, run int64
		var ended bool
		err := row.Scan(&task, &run, &ended)
		r.Log.Warn("ended the backend of a run that was stuck", "task_id", task, "run", run, "ended", ended)
		return struct{}{}, err
	})
	if err != nil {
		r.logRescueError("end stuck runs", err)
	}
}

// stuck records which runs are under way, and returns those that have been for too long.
func (r *rescuer) stuck(ctx context.Context) (stuck []int64, err error) {
	rows, err := r.api.Query(ctx, r.SQL(selectRunning))
	if err != nil {
		return nil, err
	}
	before := maps.Clone(r.running)
	clear(r.running)
	var run int64
	var timeout assign.Duration
	_, err = pgx.ForEachRow(rows, []any{&run, &timeout}, func() error {
		since, known := before[run]
		if !known {
			since = time.Now()
		}
		r.running[run] = since
		if time.Since(since) > time.Duration(timeout)+stuckAfter {
			stuck = append(stuck, run)
		}
		return nil
	})
	return stuck, err
}

// selectOldest reads the first waiting request of each task by the index of waiting requests. It is written so that no other
// index has its order; otherwise PostgreSQL might walk through the primary key, and with it all ended requests. It leaves out
// requests that were left lingering, and those of paused tasks, because they wait on purpose. A request for which a round found
// nothing has a reason. A change of the task ends its look_after, and keeps the reason: without it, each change would look as if somebody
// had waited for hours until the next round. One whose query has only failed so far has no reason, and counts after a change.
const selectOldest = `
select extract(epoch from greatest(max(clock_timestamp() - r.created_at), interval '0'))::float8, count(*) > 0
from getwork.task_state s
cross join lateral (
  select r.created_at
  from getwork.work_requested r
  where r.task_id between s.task_id and s.task_id and r.state = 'pending' and r.look_after is null and r.reason is null
  order by r.task_id, r.id
  limit 1
) r
where s.deleted_at is null and not s.paused`

// Age is for how long something has been the case, as last seen.
type Age struct{ since atomic.Pointer[time.Time] } // nil: it is not the case

// Load returns the present age; 0: it is not the case. The age grows while nobody can look.
func (a *Age) Load() time.Duration {
	since := a.since.Load()
	if since == nil {
		return 0
	}
	return time.Since(*since)
}

// readOldest reads how long the oldest request in the whole cluster has waited, for metrics. If waiting is false, no request
// waits, and nothing is read. At every pace it reads only as often as at ease.
func (r *rescuer) readOldest(ctx context.Context, waiting bool) {
	if !waiting {
		r.Oldest.since.Store(nil)
		return
	}
	if time.Since(r.oldest) < r.LookEvery {
		return
	}
	r.oldest = time.Now()
	var seconds float64
	var waits bool
	if err := r.api.QueryRow(ctx, r.SQL(selectOldest)).Scan(&seconds, &waits); err != nil {
		r.logRescueError("look for the oldest request", err)
		return // keep the age that was seen last
	}
	if !waits {
		r.Oldest.since.Store(nil)
		return
	}
	if seconds == 0 && r.Oldest.since.Load() != nil {
		return // it came before the clock was set back; nobody knows when, but it has waited since it was first seen
	}
	since := time.Now().Add(-time.Duration(seconds * float64(time.Second)))
	r.Oldest.since.Store(&since)
}
