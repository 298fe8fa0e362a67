package doctor

import (
	"context"
	"fmt"
	"time"

	"getwork/assign/records"
)

// tasksNow is how the tasks do whose query is in force.
const tasksNow = `
select s.name, s.paused, v.query is null, coalesce(s.last_error, ''), s.failures + s.retries,
  extract(epoch from coalesce(s.longest, '0'))::float8, extract(epoch from coalesce(s.usual, '0'))::float8, extract(epoch from v.fresh_for)::float8, extract(epoch from v.query_timeout)::float8,
  exists (select from getwork.run r where r.task_id = s.task_id and r.state = 'finished'),
  extract(epoch from clock_timestamp() - (select min(f.created_at) from getwork.task_version f where f.task_id = s.task_id))::float8
from getwork.task_state s join getwork.task_version v using (task_id, version)
where s.deleted_at is null order by s.name`

type taskNow struct {
	Name                           string
	Paused, Inbox                  bool
	Error                          string
	Failures                       int
	Longest, Usual, Fresh, Allowed float64 // seconds
	Ran                            bool
	Age                            float64 // seconds
}

// eachTask collects what a function finds about tasks with a query that are not paused.
func (x *examination) eachTask(ctx context.Context, look func(taskNow) []Finding) (found []Finding, n int, err error) {
	all, err := rowsOf[taskNow](ctx, x.db, x.name.SQL(tasksNow))
	for _, t := range all {
		if !t.Inbox && !t.Paused {
			n++
			found = append(found, look(t)...)
		}
	}
	return found, n, err
}

func lookAtFailedTasks(ctx context.Context, x *examination) ([]Finding, error) {
	found, n, err := x.eachTask(ctx, func(t taskNow) []Finding {
		if t.Failures == 0 {
			return nil
		}
		what := t.Error
		if what == "" {
			what = "the database was away, or the run was interrupted; it is repeated"
		}
		return []Finding{failed(fmt.Sprintf("try it with `getwork task preview %s`, then correct the query or go back with `getwork task restore`", t.Name), "the last run of %s failed: %s", t.Name, what)}
	})
	if err != nil {
		return nil, err
	}
	return orFine(found, "%s looked at; no last run failed", counted(n, "task"))
}

func lookAtUnusedTasks(ctx context.Context, x *examination) ([]Finding, error) {
	found, n, err := x.eachTask(ctx, func(t taskNow) []Finding {
		if age := time.Duration(t.Age * float64(time.Second)); !t.Ran && age > x.limits.unused {
			return []Finding{warned(fmt.Sprintf("try it with `getwork task preview %s`, and tell people that it is there; or pause or delete it", t.Name), "%s has never run, and was made %s ago", t.Name, round(age))}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return orFine(found, "%s looked at; each has run, or is new", counted(n, "task"))
}

func lookAtSlowTasks(ctx context.Context, x *examination) ([]Finding, error) {
	found, n, err := x.eachTask(ctx, func(t taskNow) (found []Finding) {
		if t.Fresh > 0 && t.Usual >= t.Fresh {
			found = append(found, warned("raise fresh_for above twice the query's time, or make the query faster",
				"%s usually takes %s, and its result is fresh for %s: the query runs all the time, and people wait all the same", t.Name, seconds(t.Usual), seconds(t.Fresh)))
		}
		if t.Longest > 0.8*t.Allowed {
			found = append(found, warned("raise query_timeout, or make the query faster", "%s took up to %s lately, and its query_timeout is %s", t.Name, seconds(t.Longest), seconds(t.Allowed)))
		}
		return found
	})
	if err != nil {
		return nil, err
	}
	return orFine(found, "%s looked at; none is too slow for its settings", counted(n, "task"))
}

func seconds(s float64) time.Duration { return round(time.Duration(s * float64(time.Second))) }

// overdue are requests that should have been served and leases that should have been swept, as of now.
const overdue = `
select
  coalesce((select extract(epoch from max(clock_timestamp() - r.created_at - v.query_timeout))
    from getwork.work_requested r join getwork.task_state s using (task_id) join getwork.task_version v using (task_id, version)
    where r.state = 'pending' and r.linger_until is null and not s.paused and s.deleted_at is null), 0)::float8,
  coalesce((select extract(epoch from clock_timestamp() - min(lease_expires_at)) from getwork.work where state = 'held' and lease_expires_at < clock_timestamp()), 0)::float8`

func lookAtWaiting(ctx context.Context, x *examination) (found []Finding, err error) {
	type late struct{ Request, Lease float64 }
	is, err := rowsOf[late](ctx, x.db, x.name.SQL(overdue))
	if err != nil {
		return nil, err
	}
	const advice = "start a node, or look at the nodes' logs: a node that lives serves and sweeps within seconds"
	if by := time.Duration(is[0].Request * float64(time.Second)); by > x.limits.waiting {
		found = append(found, failed(advice, "somebody has waited for work for %s longer than the task's query may take", round(by)))
	}
	if by := time.Duration(is[0].Lease * float64(time.Second)); by > x.limits.expiredLeases {
		found = append(found, failed(advice, "a lease ended %s ago, and no node has taken the work back", round(by)))
	}
	return orFine(found, "nobody waits longer than a query may take, and no lease is overdue")
}

func lookAtNeeds(ctx context.Context, x *examination) (found []Finding, err error) {
	type nobody struct {
		Task  int64
		Name  string
		Items int64
		Needs string
	}
	all, err := rowsOf[nobody](ctx, x.db, x.name.SQL(records.SelectNobody))
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		found = append(found, warned("let somebody have what they need, with `getwork skills` or by a group, or correct the needs",
			"%s of %s for nobody: nobody known has all of %s", counted(int(t.Items), "item"), t.Name, t.Needs))
	}
	return orFine(found, "somebody may have each item that needs groups or skills")
}
