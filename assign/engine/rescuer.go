package engine

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

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
  exists (select from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version where ` + tooLate + `),
  exists (select from getwork.work_requested r where r.state = 'pending' and r.valid_until <= clock.at),
  clock.at
from (select clock_timestamp() as at offset 0) clock`

// selectOrphans reads, of each task, requests that should have been served two seconds ago, or all if their run died with its
// node. It reads enough of them to tell whether the rescue has served anybody. A run is alive while its backend is in the
// transaction that took the run lock. That is a hint, which saves trying the lock each time; the lock is the truth.
const selectOrphans = `
select s.task_id, coalesce(array_agg(r.id order by r.id) filter (where r.late or u.state = 'running'), '{}'),
  coalesce(u.finished_at not between clock_timestamp() - interval '2 seconds' and clock_timestamp(), true),
  case when u.state = 'running' then u.id else 0 end
from getwork.task_state s
cross join lateral (
  select r.id, coalesce(r.look_after < clock_timestamp() - interval '2 seconds',
    r.created_at not between clock_timestamp() - interval '2 seconds' and clock_timestamp()) as late
  from getwork.work_requested r
  where r.task_id = s.task_id and ` + servable + `
  order by r.id
  limit 200
) r
left join lateral (
  select u.id, u.state, u.backend, u.started_at, u.finished_at
  from getwork.run u
  where u.task_id = s.task_id
  order by u.id desc
  limit 1
) u on true
where (s.deleted_at is not null
    or not s.paused and (s.fresh_until > clock_timestamp()
      or coalesce(s.failed_until <= clock_timestamp(), true) and coalesce(s.retry_at <= clock_timestamp(), true)))
  and (u.state is distinct from 'running' or not exists (
    select from pg_stat_activity a
    where a.pid = u.backend and a.datname = current_database() and a.xact_start < u.started_at))
group by s.task_id, u.id, u.state, u.finished_at
order by min(r.id)`

// pace says how soon to look again.
type pace int

const (
	atEase  pace = iota // nothing is under way that a death could leave behind
	closely             // a run is under way, a request has just come, or the database is away
	atOnce              // a run seems to be dead, but may only just have ended
)

// rescuePause is LookEvery at ease and a fifth or a twentieth of it otherwise, longer or shorter at random by up to half, so that
// a dozen nodes do not look at the same moment. At ease two looks are less than 3 s apart, so a holder's death is noticed within that time.
func (r *rescuer) rescuePause(p pace) time.Duration {
	switch p {
	case closely:
		return r.LookEvery/10 + rand.N(r.LookEvery/5)
	case atOnce:
		return r.LookEvery/40 + rand.N(r.LookEvery/20)
	}
	return r.LookEvery*3/5 + rand.N(r.LookEvery*4/5)
}

// rescueSoon makes the rescuer look closely, because the node that runs a query may die.
func (e *Engine) rescueSoon() {
	select {
	case e.began <- struct{}{}:
	default:
	}
}

// rescuer finds, on every node, what nobody serves: requests whose node died before it woke their task, or whose run's holder
// died; runs that died or are stuck; times that a clock set back has put out of reach.
type rescuer struct {
	*Engine

	// What one look keeps for the next.
	dead    map[int64]bool      // runs that were found dead
	running map[int64]time.Time // since when this node has seen runs under way
	gone    map[int64]time.Time // since when this node has seen that a run's lock has no holder
	at      time.Time           // when the last look was, by the database's clock; zero: there was none
	seen    time.Time           // the same by this node's clock
	oldest  time.Time           // when the oldest request was last read
}

func newRescuer(e *Engine) *rescuer {
	return &rescuer{Engine: e, dead: map[int64]bool{}, running: map[int64]time.Time{}, gone: map[int64]time.Time{}}
}

// run looks until ctx ends.
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
		again.Reset(r.rescuePause(next))
	}
}

// logRescueError logs now and then that a look failed; the look is repeated. If the cause is a revoked right and not a
// database that is away, nothing else would log it, and nobody would take over what dies.
func (e *Engine) logRescueError(what string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the node is shutting down
	}
	if facts := e.logLimit.Again(what, err); facts != nil {
		e.Log.Warn(what+"; it is tried again", facts...)
	}
}

// rescueWithin bounds one look, so that connections which the network swallowed do not stop the rescuer.
const rescueWithin = 10 * time.Second

// rescueOnce is one look.
func (r *rescuer) rescueOnce(ctx context.Context) pace {
	ctx, cancel := context.WithTimeout(ctx, rescueWithin)
	defer cancel()
	r.Looks.n.Add(1)
	var over, running, busy, waiting, shelved, late, invalid bool
	var at time.Time
	if err := r.api.QueryRow(ctx, r.SQL(selectAnythingToRescue)).Scan(&over, &running, &busy, &waiting, &shelved, &late, &invalid, &at); err != nil {
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
	// The first look is for what committed beside an end while no other node was there to look.
	if ended := r.endedAt.Load(); invalid || r.at.IsZero() || ended != nil && time.Since(*ended) < overlap {
		if err := r.cancelEnded(ctx); err != nil && ctx.Err() == nil {
			r.logRescueError("look for requests whose users' log-in has ended", err)
		}
	}
	back, unsure := late || at.Before(r.at), false
	if r.at.IsZero() && !back {
		var err error
		if back, err = r.closedLater(ctx); err != nil {
			r.logRescueError("look for work that was closed by a clock which has been set back", err)
			unsure = true // the next look asks again
		}
	}
	if !r.at.IsZero() && at.Sub(r.at) > time.Since(r.seen)+r.LookEvery {
		r.wakeTimed()
	}
	if !back && !unsure {
		r.at, r.seen = at, time.Now()
	}
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
		refresher{r.Engine}.refreshAll(ctx)
	}
	if back { // last, so that nothing else waits if it takes too long
		if err := r.healClock(ctx); err != nil {
			if !errors.Is(err, context.Canceled) {
				r.Log.Warn("look for times that the database's clock has put out of reach; it is tried again", "error", err)
			}
			return next
		}
		r.at, r.seen = at, time.Now()
	}
	return next
}

// rescueAll serves all tasks that have requests which nobody serves. A run counts as dead when two looks have found it so:
// between the end of its lock and the update of its row, its node may be recording why it gave the run up.
func (r *rescuer) rescueAll(ctx context.Context) pace {
	rows, err := r.api.Query(ctx, r.SQL(selectOrphans))
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
			if err := r.api.QueryRow(ctx, r.SQL(countAnswered), o.Requests).Scan(&n); err == nil && n > 0 {
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
