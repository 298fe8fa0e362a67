package engine

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// glance sees with one cheap statement whether there is anything to look for: on an idle system it is all that is asked. What
// was recorded later than now was so before the clock was set back: nobody knows how long ago.
const glance = `
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
  clock.at
from (select clock_timestamp() as at offset 0) clock`

// Of each task as many requests as say whether a look has served anybody: those that should have been served two seconds
// ago or, of a run that died with its node, all. A run is alive while its backend is in the transaction that took the run
// lock. That is a hint, which saves trying the lock all along; the lock is the truth.
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
	atEase  pace = iota // nothing is under way that could be left behind
	closely             // a run is under way, somebody has just asked, or the database is away
	atOnce              // a run seems to be dead; it may only just have ended
)

// pause is LookEvery, or a tenth or less of it, up to half as long or short by chance, so that a dozen nodes do not look
// in one moment. At ease a little less than that: two looks are under 3 s apart, and so is a holder's death noticed.
func (e *Engine) pause(p pace) time.Duration {
	switch p {
	case closely:
		return e.LookEvery/10 + rand.N(e.LookEvery/5)
	case atOnce:
		return e.LookEvery/40 + rand.N(e.LookEvery/20)
	}
	return e.LookEvery*3/5 + rand.N(e.LookEvery*4/5)
}

// runBegan has the node look closely: whoever runs may die.
func (e *Engine) runBegan() {
	select {
	case e.began <- struct{}{}:
	default:
	}
}

// lookForOrphans looks, all along, for requests that nobody serves: their node died before it looked, or its
// holder did. Every node does, whether or not anybody waits on it.
func (e *Engine) lookForOrphans(ctx context.Context) error {
	l := lookout{dead: map[int64]bool{}, running: map[int64]time.Time{}, gone: map[int64]time.Time{}}
	next := atEase
	again := time.NewTimer(e.pause(next))
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.began:
			if next == atEase {
				next = closely
				again.Reset(e.pause(next))
			}
			continue
		case <-again.C:
		}
		next = e.lookAround(ctx, &l)
		again.Reset(e.pause(next))
	}
}

// failedLook tells that a look failed, now and then: it is made again. Nothing else would say so if it is not the database that is
// away, but a right that was revoked: what dies would be left behind, and nobody know.
func (e *Engine) failedLook(what string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the node is shutting down
	}
	if facts := e.complaints.Again(what, err); facts != nil {
		e.Log.Warn(what+"; it is tried again", facts...)
	}
}

// lookWithin bounds one look, so that connections which a network swallowed do not end looking.
const lookWithin = 10 * time.Second

// lookout is what one look keeps for the next.
type lookout struct {
	dead    map[int64]bool      // runs that it has found dead
	running map[int64]time.Time // since when this node has seen runs under way
	gone    map[int64]time.Time // and since when, that their locks' holders are gone
	at      time.Time           // by the database's clock; zero: none was before
	seen    time.Time           // and by this node's
}

// lookAround is one look.
func (e *Engine) lookAround(ctx context.Context, l *lookout) pace {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	e.Looks.n.Add(1)
	var over, running, busy, waiting, shelved, late bool
	var at time.Time
	if err := e.api.QueryRow(ctx, e.SQL(glance)).Scan(&over, &running, &busy, &waiting, &shelved, &late, &at); err != nil {
		e.failedLook("look for what nobody serves", err)
		return closely
	}
	e.lookAtOldest(ctx, busy || waiting)
	next := atEase
	if busy {
		next = closely
	}
	if over {
		if err := e.endLingering(ctx); err != nil && ctx.Err() == nil {
			e.failedLook("look for requests whose time is over", err)
			return next
		}
	}
	back := late || at.Before(l.at) || l.at.IsZero() && e.closedLater(ctx)
	if !l.at.IsZero() && at.Sub(l.at) > time.Since(l.seen)+e.LookEvery {
		e.lookAtTimed()
	}
	if !back {
		l.at, l.seen = at, time.Now()
	}
	if running {
		e.endDead(ctx, l.gone)
		e.endStuck(ctx, l.running)
	} else {
		clear(l.running)
		clear(l.gone)
	}
	if waiting || running {
		next = max(next, e.rescueAll(ctx, l.dead))
	}
	if shelved {
		e.refreshAll(ctx)
	}
	if back { // last: should it take too long, nobody waits for it
		if err := e.catchUp(ctx); err != nil {
			if !errors.Is(err, context.Canceled) {
				e.Log.Warn("look for what is put off for too long, since the database's clock was set back; it is tried again", "error", err)
			}
			return next
		}
		l.at, l.seen = at, time.Now()
	}
	return next
}

// rescueAll looks at all tasks that have requests which nobody serves. A run counts as dead when two looks have found it so:
// between the end of its lock and that of its row, its node may be writing down why it gave it up.
func (e *Engine) rescueAll(ctx context.Context, dead map[int64]bool) pace {
	rows, err := e.api.Query(ctx, e.SQL(selectOrphans))
	var found []orphans
	if err == nil {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[orphans])
	}
	if err != nil {
		e.failedLook("look for requests that nobody serves", err)
		return closely
	}
	before := maps.Clone(dead)
	clear(dead)
	next := atEase
	for _, o := range found {
		switch {
		case o.Run != 0 && !before[o.Run]:
			dead[o.Run] = true
			next = atOnce
		case o.Run != 0:
			dead[o.Run] = true
			e.rescue(o)
		case !o.Due:
			next = max(next, closely)
		case len(o.Requests) > 0:
			e.rescue(o)
		}
	}
	return next
}

// A backend whose client froze while it took a large result in waits for it, with the run lock, and no time-out of
// PostgreSQL's ends that (over TCP tcp_user_timeout does; over a Unix socket nothing); nor any other, for as long as its clock
// was set back. It is still the run's if its transaction is older than the run's row. One that waits for a standby is left
// alone; see commitGuard.
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

// A run that died with its node ends when its task is run again; one for which nobody waits any more ends here, or all nodes
// would look closely for ever. Whoever has the lock knows that it is dead.
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

// endDead ends runs whose locks' holders this node has found gone for as long as it is between two looks: between the end of
// the lock and that of the row, their node may be writing down why it gave them up. gone has since when, by this node's clock.
func (e *Engine) endDead(ctx context.Context, gone map[int64]time.Time) {
	rows, err := e.api.Query(ctx, e.SQL(selectDeadRuns))
	var dead []int64
	if err == nil {
		dead, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		e.failedLook("look for runs that died", err)
		return
	}
	before := maps.Clone(gone)
	clear(gone)
	var over []int64
	for _, run := range dead {
		since, known := before[run]
		if !known {
			since = time.Now()
		}
		gone[run] = since
		if time.Since(since) >= e.LookEvery {
			over = append(over, run)
		}
	}
	if len(over) == 0 {
		return
	}
	tag, err := e.write(ctx, endDeadRuns, over)
	if err != nil {
		e.failedLook("end runs that died", err)
		return
	}
	e.RunEnds[RunLost].n.Add(tag.RowsAffected())
}

// stuckAfter is how long after its query_timeout a run counts as stuck.
const stuckAfter = time.Minute

// endStuck ends runs that should have been over a minute ago, by this node's clock: running has since when it has seen them,
// since the database's, by which they began, may have been set meanwhile.
func (e *Engine) endStuck(ctx context.Context, running map[int64]time.Time) {
	stuck, err := e.stuck(ctx, running)
	if err != nil {
		e.failedLook("look for runs that are stuck", err)
	}
	if err != nil || len(stuck) == 0 {
		return
	}
	rows, err := e.api.Query(ctx, e.SQL(endStuckBackends), stuck)
	if err != nil {
		e.failedLook("end stuck runs", err)
		return
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var task, run int64
		var ended bool
		err := row.Scan(&task, &run, &ended)
		e.Log.Warn("ended the backend of a run that was stuck", "task_id", task, "run", run, "ended", ended)
		return struct{}{}, err
	})
	if err != nil {
		e.failedLook("end stuck runs", err)
	}
}

// stuck notes which runs are under way, and returns those that have been for too long.
func (e *Engine) stuck(ctx context.Context, running map[int64]time.Time) (stuck []int64, err error) {
	rows, err := e.api.Query(ctx, e.SQL(selectRunning))
	if err != nil {
		return nil, err
	}
	before := maps.Clone(running)
	clear(running)
	var run int64
	var timeout assign.Duration
	_, err = pgx.ForEachRow(rows, []any{&run, &timeout}, func() error {
		since, known := before[run]
		if !known {
			since = time.Now()
		}
		running[run] = since
		if time.Since(since) > time.Duration(timeout)+stuckAfter {
			stuck = append(stuck, run)
		}
		return nil
	})
	return stuck, err
}

// orphans are a task's requests that nobody serves.
type orphans struct {
	Task     int64
	Requests []int64
	Due      bool  // the last run ended two seconds ago or more: who ran it has looked again
	Run      int64 // that was for them, and died; 0: none
}

const countAnswered = `select count(*) from getwork.work_requested where id = any($1::bigint[]) and state <> 'pending' and round_id is not null`

// rescue takes the normal path for requests that only the periodic look found, and counts those that it served:
// not the tasks that waited for a place to run, and not those that this node was looking at anyway.
func (e *Engine) rescue(o orphans) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, noted := e.noted[o.Task]; noted || e.looks[o.Task] != nil {
		return
	}
	l := &looking{pokes: make(chan struct{}, 1)}
	began := e.spawn(func(ctx context.Context) {
		_, moved, err := e.try(ctx, o.Task, l, false)
		if err == nil && moved {
			var n int64
			if err := e.api.QueryRow(ctx, e.SQL(countAnswered), o.Requests).Scan(&n); err == nil && n > 0 {
				e.Rescued.n.Add(n)
				e.Log.Warn("served requests that nobody else did", "task_id", o.Task, "requests", n)
			}
		}
		e.look(ctx, o.Task, l)
	})
	if began {
		e.looks[o.Task] = l
	}
}
