package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
)

// A node has places for so many queries at a time. One that becomes free is handed to who has waited for longest: a task with
// requests, by the database, or somebody who wants to look at a query's result. The task that has just had it is behind all who
// waited by then, on whichever node: without that it would take its place again, and few busy tasks keep the others waiting.

// inLine is somebody who waits for a place, but no task.
type inLine struct {
	since time.Time
	given chan struct{} // closed when the place is his
}

type lookingKey struct{}

// takeNow takes a place, if one was handed to the look that ctx is of, or is free.
func (e *Engine) takeNow(ctx context.Context) bool {
	l, _ := ctx.Value(lookingKey{}).(*looking)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case l != nil && l.handed:
		l.handed = false
	case e.free > 0:
		e.free--
	default:
		return false
	}
	if l != nil {
		l.placed = true
	}
	return true
}

// places is how many are free.
func (e *Engine) places() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.free
}

// leave has the look that ctx is of no longer have a place.
func (e *Engine) leave(ctx context.Context) {
	if l, _ := ctx.Value(lookingKey{}).(*looking); l != nil {
		e.mu.Lock()
		l.placed = false
		e.mu.Unlock()
	}
}

// note remembers a task that waits for a place to run, and whether it was stirred, and tells the other nodes, which may
// have one.
func (e *Engine) note(task int64, stirred bool) {
	e.mu.Lock()
	was, known := e.noted[task]
	e.noted[task] = was || stirred
	free := e.free > 0 // one was given back between our look and our note
	if free {
		e.free--
	}
	e.mu.Unlock()
	if !known {
		e.Announce.Waiting(task)
	}
	if free {
		e.givePlace()
	}
}

// givePlace gives a place back that no run has had. It does not block.
func (e *Engine) givePlace() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.noted) > 0 && e.spawn(func(ctx context.Context) { e.passOn(ctx, false) }) {
		return
	}
	e.giveInLine()
}

// giveInLine gives a place to the first in line, or leaves it free. e.mu must be held.
func (e *Engine) giveInLine() {
	if len(e.line) == 0 {
		e.free++
		return
	}
	close(e.line[0].given)
	e.line = e.line[1:]
}

// Of each task that has requests which a look could serve: since when the first of them is due, but at least since its last run
// ended. Not of one whose run is under way: its lock is taken. The tasks are found one behind the other, since thousands may
// wait for one.
const selectFirstInLine = `
with recursive waiting as (
  (select r.task_id from getwork.work_requested r where r.state = 'pending' order by r.task_id limit 1)
  union all
  select (select r.task_id from getwork.work_requested r where r.state = 'pending' and r.task_id > w.task_id order by r.task_id limit 1)
  from waiting w where w.task_id is not null
)
select s.task_id, coalesce(extract(epoch from clock_timestamp() - greatest(due.at, last.finished_at)), 0)::float8
from waiting w
join getwork.task_state s on s.task_id = w.task_id
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
cross join lateral (
  select least(
    (select r.created_at from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after is null order by r.id limit 1),
    (select min(r.look_after) from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after <= clock_timestamp())) as at
) due
left join lateral (
  select u.state, u.backend, u.started_at, u.finished_at from getwork.run u where u.task_id = s.task_id order by u.id desc limit 1
) last on true
where due.at is not null and ($1 or s.task_id = any($2::bigint[])) and s.task_id <> all ($3::bigint[])
  and (s.deleted_at is not null or v.query is not null and not s.paused and (s.fresh_until > clock_timestamp()
    or coalesce(s.failed_until <= clock_timestamp(), true) and coalesce(s.retry_at <= clock_timestamp(), true)))
  and (last.state is distinct from 'running' or not exists (
    select from pg_stat_activity a
    where a.pid = last.backend and a.datname = current_database() and a.xact_start < last.started_at))
order by greatest(due.at, last.finished_at), s.task_id
limit 1`

// passOn gives a place to who has waited for longest: after a run to any task, whether or not this node knows that it waits; else
// to one of those that it has noted, so that one whose lock somebody holds is not tried without end. At once nobody has the
// place: whoever asks for one meanwhile is noted, and seen to in the end.
func (e *Engine) passOn(ctx context.Context, ran bool) {
	if ctx.Err() != nil { // the node is shutting down
		e.mu.Lock()
		defer e.mu.Unlock()
		e.giveInLine()
		return
	}
	e.passing.Lock()
	defer e.passing.Unlock()
	e.mu.Lock()
	noted, placed := slices.Collect(maps.Keys(e.noted)), []int64{}
	for task, l := range e.looks {
		if l.placed || l.handed {
			placed = append(placed, task)
		}
	}
	e.mu.Unlock()
	task, waited, err := e.firstInLine(ctx, ran, noted, placed)
	if err != nil && ctx.Err() == nil && !pg.Away(err) { // then in any order; if the database is away, others say so
		e.Log.Warn("order of waiting tasks", "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case len(e.line) > 0 && (task == 0 || time.Since(e.line[0].since) >= waited):
		e.giveInLine()
	case task == 0 || !e.handTo(task):
		e.giveInLine()
		all := maps.Clone(e.noted)
		clear(e.noted)
		for task, stirred := range all {
			e.lookAtLocked(task, stirred)
		}
	}
}

func (e *Engine) firstInLine(ctx context.Context, ran bool, noted, placed []int64) (task int64, waited time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	var seconds float64
	err = e.api.QueryRow(ctx, e.SQL(selectFirstInLine), ran, noted, placed).Scan(&task, &seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read who waits for a place: %w", err)
	}
	return task, time.Duration(seconds * float64(time.Second)), nil
}

// handTo has this node look at the task with a place in hand; false: it has one already, or the node is shutting down. e.mu
// must be held.
func (e *Engine) handTo(task int64) bool {
	if l := e.looks[task]; l != nil && (l.handed || l.placed) {
		return false
	}
	e.lookAtLocked(task, e.noted[task])
	l := e.looks[task]
	if l == nil {
		return false
	}
	delete(e.noted, task)
	l.handed = true
	return true
}

// try is an attempt by a look of this node, which may have a place in hand: if that is not needed, the next in line has it.
func (e *Engine) try(ctx context.Context, task int64, l *looking, stirred bool) (p prospect, moved bool, err error) {
	e.mu.Lock()
	had := l.handed
	e.mu.Unlock()
	p, moved, err = e.attempt(context.WithValue(ctx, lookingKey{}, l), task, stirred)
	e.mu.Lock()
	unused := had && l.handed
	if unused {
		l.handed = false
	}
	e.mu.Unlock()
	if unused {
		e.givePlace()
	}
	return p, moved, err
}
