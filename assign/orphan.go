package assign

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Counter counts what happened on this node since it started.
type Counter struct{ n atomic.Int64 }

// Load is the count.
func (c *Counter) Load() int64 { return c.n.Load() }

// glance sees with one cheap statement whether there is anything to look for: on an idle system it is all that is asked.
const glance = `
select
  exists (select from getwork.work_requested r where r.state = 'pending' and r.linger_until <= clock.at),
  exists (select from getwork.run u where u.state = 'running'),
  exists (select from getwork.work_requested r where r.state = 'pending' and r.look_after < clock.at - interval '2 seconds')
    or exists (select from getwork.work_requested r where r.state = 'pending' and r.look_after is null and r.created_at < clock.at - interval '2 seconds'),
  exists (select from getwork.task_state s where s.shelf_run is not null and s.used_at > clock.at - interval '24 hours')
from (select clock_timestamp() as at offset 0) clock`

// Of each task as many requests as say whether a look has served anybody.
const selectOrphans = `
select s.task_id, array_agg(r.id order by r.id)
from getwork.task_state s
cross join lateral (
  select r.id
  from getwork.work_requested r
  where r.task_id = s.task_id and ` + servable + ` and coalesce(r.look_after, r.created_at) < clock_timestamp() - interval '2 seconds'
  order by r.id
  limit 200
) r
where (s.deleted_at is not null
    or not s.paused and (s.fresh_until > clock_timestamp()
      or coalesce(s.failed_until <= clock_timestamp(), true) and coalesce(s.retry_at <= clock_timestamp(), true)))
  and coalesce((select u.finished_at from getwork.run u where u.task_id = s.task_id order by u.id desc limit 1)
    < clock_timestamp() - interval '2 seconds', true)
group by s.task_id
order by min(r.id)`

// lookForOrphans looks, all along, for requests that nobody serves: their node died before it looked, or its
// holder did. Every node does, whether or not anybody waits on it.
func (e *Engine) lookForOrphans(ctx context.Context) error {
	for {
		wait := e.LookEvery/2 + rand.N(e.LookEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		var over, running, waiting, shelved bool
		if err := e.api.QueryRow(ctx, e.SQL(glance)).Scan(&over, &running, &waiting, &shelved); err != nil {
			continue // the database is away; others say so
		}
		if over {
			if err := e.endLingering(ctx); err != nil && ctx.Err() == nil {
				e.Log.Warn("look for requests whose time is over", "error", err)
				continue
			}
		}
		if running {
			e.endStuck(ctx)
		}
		if waiting {
			e.rescueAll(ctx)
		}
		if shelved {
			e.refreshAll(ctx)
		}
	}
}

// rescueAll looks at all tasks that have requests which nobody serves.
func (e *Engine) rescueAll(ctx context.Context) {
	rows, err := e.api.Query(ctx, e.SQL(selectOrphans))
	if err != nil {
		return // the database is away; others say so
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[orphans])
	if err != nil && ctx.Err() == nil {
		e.Log.Warn("look for requests that nobody serves", "error", err)
	}
	for _, o := range found {
		e.rescue(o)
	}
}

// A backend whose client froze while it took a large result in waits for it, with the run lock, and no time-out of
// PostgreSQL's ends that (over TCP tcp_user_timeout does; over a Unix socket nothing). It is still the run's if its
// transaction is older than the run's row.
const endStuckBackends = `
select u.task_id, u.id, pg_terminate_backend(a.pid)
from getwork.run u
join getwork.task_version v on v.task_id = u.task_id and v.version = u.version
join pg_stat_activity a on a.pid = u.backend and a.datname = current_database() and a.xact_start < u.started_at
where u.state = 'running' and u.started_at < clock_timestamp() - v.query_timeout - interval '1 minute'`

// endStuck ends runs that should have been over a minute ago.
func (e *Engine) endStuck(ctx context.Context) {
	rows, err := e.api.Query(ctx, e.SQL(endStuckBackends))
	if err != nil {
		return // the database is away; others say so
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var task, run int64
		var ended bool
		err := row.Scan(&task, &run, &ended)
		e.Log.Warn("ended the backend of a run that was stuck", "task_id", task, "run", run, "ended", ended)
		return struct{}{}, err
	})
	if err != nil && ctx.Err() == nil {
		e.Log.Warn("end stuck runs", "error", err)
	}
}

// orphans are a task's requests that should have been served two seconds ago.
type orphans struct {
	Task     int64
	Requests []int64
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
		_, moved, err := e.attempt(ctx, o.Task, false)
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
