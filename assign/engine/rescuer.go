package engine

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/records"
)

// pace says how soon to check again.
type pace int

const (
	atEase  pace = iota // nothing is under way that a death could leave behind
	closely             // a run is under way, a request has just come, or the database is away
	atOnce              // a run seems to be dead, but may only just have ended
)

// rescuePause is LookEvery at ease and a fifth or a twentieth of it otherwise, longer or shorter at random by up to half, so that
// a dozen nodes do not check at the same moment. At ease two checks are less than 3 s apart, so a holder's death is noticed within that time.
func (r *rescuer) rescuePause(p pace) time.Duration {
	switch p {
	case closely:
		return r.LookEvery/10 + rand.N(r.LookEvery/5)
	case atOnce:
		return r.LookEvery/40 + rand.N(r.LookEvery/20)
	}
	return r.LookEvery*3/5 + rand.N(r.LookEvery*4/5)
}

// rescueSoon makes the rescuer check often, because the node that runs a query may die.
func (e *Engine) rescueSoon() {
	select {
	case e.began <- struct{}{}:
	default:
	}
}

// rescuer finds, on every node, what nobody serves: requests whose node died before it woke their task, or whose run's holder
// died; runs that died or are stuck.
type rescuer struct {
	*Engine

	// What one check keeps for the next.
	dead    map[int64]bool      // runs that were found dead
	running map[int64]time.Time // since when this node has seen runs under way
	gone    map[int64]time.Time // since when this node has seen that a run's lock has no holder
	at      time.Time           // when the last check was, by the database's clock; zero: there was none
	seen    time.Time           // the same by this node's clock
	oldest  time.Time           // when the oldest request was last read
	begins  time.Duration       // until the next absence begins, as of the last check
}

func newRescuer(e *Engine) *rescuer {
	return &rescuer{Engine: e, dead: map[int64]bool{}, running: map[int64]time.Time{}, gone: map[int64]time.Time{}}
}

// run checks until ctx ends.
func (r *rescuer) run(ctx context.Context) error {
	next := atEase
	again := time.NewTimer(r.rescuePause(next))
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.began:
			if next == atEase {
				next = closely
				again.Reset(r.rescuePause(next))
			}
			continue
		case <-again.C:
		}
		next = r.rescueOnce(ctx)
		again.Reset(min(r.rescuePause(next), r.begins))
	}
}

// logRescueError logs now and then that a check failed; the check is repeated. If the cause is a revoked right and not a
// database that is away, nothing else would log it, and nobody would take over what dies.
func (e *Engine) logRescueError(what string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the node is shutting down
	}
	if facts := e.logLimit.Again(what, err); facts != nil {
		e.Log.Warn(what+"; it is tried again", facts...)
	}
}

// rescueWithin bounds one check, so that connections which the network swallowed do not stop the rescuer.
const rescueWithin = 10 * time.Second

// selectAnythingToRescue finds out with one cheap statement whether there is anything to rescue. On an idle system nothing
// else is asked. A request recorded later than now was recorded before the clock was set back: nobody knows how long ago.
const selectAnythingToRescue = `
select
  exists (select from getwork.work_requested r where r.state = 'pending' and r.linger_until <= clock.at),
  exists (select from getwork.run u where u.state = 'running'),
  case when exists (select from getwork.run u where u.state = 'running') then true -- and the thousands who may wait for it are not read
    else exists (select from getwork.work_requested r where r.state = 'pending' and r.look_after is null and r.created_at between clock.at - interval '2 seconds' and clock.at)
  end,
  exists (select from getwork.work_requested r where r.state = 'pending' and r.look_after < clock.at - interval '2 seconds')
    or exists (select from getwork.work_requested r where r.state = 'pending' and r.look_after is null and r.created_at not between clock.at - interval '2 seconds' and clock.at),
  exists (select from getwork.task_state s where s.shelf_run is not null and s.used_at > clock.at - interval '24 hours'),
  exists (select from getwork.work_requested r where r.state = 'pending' and r.valid_until <= clock.at),
  exists (
    select from getwork.absence a
    where a.ended_at is null and a.from_at <= clock.at and (a.until_at <= clock.at or ` + heldAway + `
      or exists (select from getwork.work_requested r where r.user_name = a.user_name and r.state = 'pending'))),
  exists (select from getwork.work_requested r where r.task_id = 0 and r.state = 'pending'),
  extract(epoch from coalesce((select min(a.from_at) from getwork.absence a where a.ended_at is null and a.from_at > clock.at), clock.at + interval '1 hour') - clock.at)::float8,
  clock.at
from (select clock_timestamp() as at offset 0) clock`

// rescueOnce is one check.
func (r *rescuer) rescueOnce(ctx context.Context) pace {
	ctx, cancel := context.WithTimeout(ctx, rescueWithin)
	defer cancel()
	r.Looks.n.Add(1)
	var over, running, busy, waiting, shelved, invalid, away, nexts bool
	var begins float64
	var at time.Time
	if err := r.DB.QueryRow(ctx, r.SQL(selectAnythingToRescue)).Scan(&over, &running, &busy, &waiting, &shelved, &invalid, &away, &nexts, &begins, &at); err != nil {
		r.begins = rescueWithin
		r.logRescueError("look for anything that nobody serves", err)
		return closely
	}
	r.readOldest(ctx, busy || waiting)
	next := atEase
	if busy {
		next = closely
	}
	if over {
		if err := r.endLingering(ctx); err != nil && ctx.Err() == nil {
			r.logRescueError("look for requests that have lingered for long enough", err)
			return next
		}
	}
	// The first check is for what committed beside an end while no other node was there.
	if ended := r.endedAt.Load(); invalid || r.at.IsZero() || ended != nil && time.Since(*ended) < overlap {
		if err := r.cancelEnded(ctx); err != nil && ctx.Err() == nil {
			r.logRescueError("look for requests whose users' log-in has ended", err)
		}
	}
	r.begins = max(time.Duration(begins*float64(time.Second)), time.Millisecond) + rand.N(r.LookEvery/20) // not all nodes at once
	if away {
		if err := r.treatAway(ctx); err != nil && ctx.Err() == nil {
			r.logRescueError("take work from people who are away", err)
		}
	}
	if moved := at.Sub(r.at); !r.at.IsZero() && (moved < 0 || moved > time.Since(r.seen)+r.LookEvery) {
		r.wakeTimed()
	}
	r.at, r.seen = at, time.Now()
	if running {
		r.endDead(ctx)
		r.endStuck(ctx)
	} else {
		clear(r.running)
		clear(r.gone)
	}
	if waiting || running {
		next = max(next, r.rescueAll(ctx))
	}
	if shelved {
		r.refreshAll(ctx)
	}
	if nexts {
		r.rescueNext(ctx)
	}
	return next
}

// selectOrphans reads, of each task, requests that should have been served two seconds ago, or all if their run died with its
// node: of those that a round could end now, because no round has read them yet or their look_after has come. It does not compare a
// request's time or id with a run's: a click can be stamped before a round's read and commit after it. It reads enough of them to distinguish
// whether the rescue has served anybody. A run is alive while its backend is in the transaction that took the run lock. That is a hint,
// which saves trying the lock each time; the lock is the truth.
const selectOrphans = `
select s.task_id, coalesce(array_agg(r.id order by r.id) filter (where r.late or u.state = 'running'), '{}'),
  coalesce(u.finished_at not between clock_timestamp() - interval '2 seconds' and clock_timestamp(), true),
  case when u.state = 'running' then u.id else 0 end
from getwork.task_state s
cross join lateral (
  select r.id, coalesce(r.look_after < clock_timestamp() - interval '2 seconds',
    r.created_at not between clock_timestamp() - interval '2 seconds' and clock_timestamp()) as late
  from getwork.work_requested r
  where r.id = any (array(
      (select q.id from getwork.work_requested q
      where q.task_id = s.task_id and q.state = 'pending' and q.look_after is null order by q.id limit 200)
      union all
      (select q.id from getwork.work_requested q
      where q.task_id = s.task_id and q.state = 'pending' and q.look_after <= (select clock_timestamp()) order by q.look_after limit 200)
      union all
      (select q.id from getwork.work_requested q
      where q.task_id = 0 and q.state = 'pending' and q.todo[1] = s.task_id and (q.look_after is null or q.look_after <= (select clock_timestamp())) limit 200)))
) r
left join lateral (
  select u.id, u.state, u.backend, u.started_at, u.finished_at
  from getwork.run u
  where u.task_id = s.task_id
  order by u.id desc
  limit 1
) u on true
where (s.deleted_at is not null
    or not s.paused and (` + records.ShelfFresh + `
      or not ` + records.HeldBack + `))
  and (u.state is distinct from 'running' or not exists (
    select from pg_stat_activity a
    where a.pid = u.backend and a.datname = current_database() and a.xact_start < u.started_at))
group by s.task_id, u.id, u.state, u.finished_at
order by min(r.id)`

// rescueAll serves all tasks that have requests which nobody serves. A run counts as dead when two checks have found it so:
// between the end of its lock and the update of its row, its node may be recording why it gave the run up.
func (r *rescuer) rescueAll(ctx context.Context) pace {
	rows, err := r.DB.Query(ctx, r.SQL(selectOrphans))
	var found []orphans
	if err == nil {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[orphans])
	}
	if err != nil {
		r.logRescueError("look for requests that nobody serves", err)
		return closely
	}
	before := maps.Clone(r.dead)
	clear(r.dead)
	next := atEase
	for _, o := range found {
		switch {
		case o.Run != 0 && !before[o.Run]:
			r.dead[o.Run] = true
			next = atOnce
		case o.Run != 0:
			r.dead[o.Run] = true
			r.rescue(o)
		case !o.Due:
			next = max(next, closely)
		case len(o.Requests) > 0:
			r.rescue(o)
		}
	}
	return next
}

// orphans are a task's requests that nobody serves.
type orphans struct {
	Task     int64
	Requests []int64
	Due      bool  // the last run ended at least two seconds ago, so its node has looked again
	Run      int64 // the run that was for them and died; 0: none
}

const countAnswered = `select count(*) from getwork.work_requested where id = any($1::bigint[]) and state <> 'pending' and round_id is not null`

// rescue serves a task by the normal path, and counts the requests that were served because of it. It leaves out tasks that
// wait for a run slot, and tasks that this node serves anyway.
func (r *rescuer) rescue(o orphans) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, parked := r.slots.parked[o.Task]; parked || r.loops[o.Task] != nil {
		return
	}
	l := &serveLoop{pokes: make(chan struct{}, 1)}
	began := r.spawn(func(ctx context.Context) {
		_, moved, err := r.slots.serveWithSlot(ctx, o.Task, l, false)
		if err == nil && moved {
			var n int64
			if err := r.DB.QueryRow(ctx, r.SQL(countAnswered), o.Requests).Scan(&n); err == nil && n > 0 {
				r.Rescued.n.Add(n)
				r.Log.Warn("served requests that nobody else did", "task_id", o.Task, "requests", n)
			}
		}
		r.runServeLoop(ctx, o.Task, l)
	})
	if began {
		r.loops[o.Task] = l
	}
}

// A run that died with its node ends when its task is run again. If no request waits for it any more it ends here, because
// otherwise all nodes would check often for ever. A session that gets the run lock knows that the run is dead.
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
	rows, err := r.DB.Query(ctx, r.SQL(selectDeadRuns))
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

// A backend whose client froze while it received a large result waits for the client, with the run lock. No time-out of
// PostgreSQL's ends that: over TCP tcp_user_timeout does, over a Unix socket nothing. If the clock was set back, no time-out
// works for that long. The backend still belongs to the run if its transaction is older than the run's row. A backend that
// waits for a standby is left alone; see pg's commitGuard.
const endStuckBackends = `
select u.task_id, u.id, pg_terminate_backend(a.pid)
from getwork.run u
join pg_stat_activity a on a.pid = u.backend and a.datname = current_database() and a.xact_start < u.started_at
  and a.wait_event is distinct from 'SyncRep'
where u.state = 'running' and u.id = any($1::bigint[])`

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
	rows, err := r.DB.Query(ctx, r.SQL(endStuckBackends), stuck)
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

const selectRunning = `
select u.id, (extract(epoch from v.query_timeout) * 1000000)::bigint
from getwork.run u
join getwork.task_version v on v.task_id = u.task_id and v.version = u.version
where u.state = 'running'`

// stuck records which runs are under way, and returns those that have been for too long.
func (r *rescuer) stuck(ctx context.Context) (stuck []int64, err error) {
	rows, err := r.DB.Query(ctx, r.SQL(selectRunning))
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
// requests that wait on purpose: those of paused tasks, and those that linger because a round found nothing for them. The latter
// have a look_after and a reason. A change of the task ends the look_after, so the reason is asked, too: without it, each change would
// seem to show somebody who has waited for hours. A request that lingers only because its query fails has no reason, so it counts
// as soon as a change ends its look_after.
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

// Load returns the present age; 0: it is not the case. The age grows while nobody can read it.
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
	if err := r.DB.QueryRow(ctx, r.SQL(selectOldest)).Scan(&seconds, &waits); err != nil {
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
