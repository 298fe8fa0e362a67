package records

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

var selectTasks = `
select s.task_id, s.name, s.paused, s.version,
  (select count(*) from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending'),
  held.n,
  ` + onShelf + `,
  (select u.started_at from getwork.run u where u.task_id = s.task_id and u.state = 'running'),
  round(extract(epoch from s.usual), 3)::float8, s.failures, s.last_error,
  coalesce((select r.id from getwork.work_requested r where r.task_id between s.task_id and s.task_id and r.state = 'pending' order by r.task_id desc, r.id desc limit 1), 0),
  coalesce(held.newest, 0),
  u.given - u.passed_over, u.given - u.passed_over - u.blocked, ` + RankedAt + `, u.oldest,
  held.late + ` + lateWaiting + `, least(held.next, ` + nextWaiting + `),
  ` + SettingsColumns + `
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
left join getwork.run u on u.id = s.last_run
cross join lateral (
  select count(*) as n, max(w.id + 0) as newest, count(*) filter (where w.deadline <= (select clock_timestamp())) as late,
    min(w.deadline) filter (where w.deadline > (select clock_timestamp())) as next
  from getwork.work w
  where w.task_id = s.task_id and w.state = 'held') held
where s.deleted_at is null and ($1::text is null or s.name = $1) and ($2::bigint[] is null or s.task_id = any($2))
order by v.position, s.name`

// onShelf is what the task s, in its version v, can hand out without a run, up to 100,000: followed tasks are read several times a
// second, and counting a million rows each time would delay what others read.
//
// A shelf is not counted, because many tasks may have a long one. What rounds have counted may be too much, since they don't count what
// was claimed, or handed out while the run went on. There are no more than there are ranks from shelf_from on, so that a shelf that is
// used up has 0.
const (
	onShelf    = `case when v.query is null and s.task_id = any($3::bigint[]) then -1 else ` + readyItems + `100000` + orShelf + ` end`
	readyItems = `case when v.query is null then
    (select count(*) from (select from getwork.item i where i.task_id = s.task_id and i.due_at is null and i.done_at is null limit `
	orShelf = `) ready)
  when ` + ShelfLasts + ` then
    greatest(least(s.shelf_left, 1 - s.shelf_from + (select c.rank from getwork.candidate c where c.run_id = s.shelf_run order by c.rank desc limit 1), 100000), 0)
  else 0 end`
)

// lateWaiting is how much of what waits on the shelf or in the inbox of the task s is late, and nextWaiting is the earliest deadline of the
// rest. Only 1,000 are counted, since followed tasks are read several times a second. What somebody holds is counted as that. What was
// let go of since the shelf's run can't be had from it. A condition on the deadline alone is a search in an index of what has one.
const (
	lateWaiting = `case when v.query is null
    then (select count(*) from (select ` + waitsInInbox + ` and c.deadline <= (select clock_timestamp()) limit 1000) l)
    else (select count(*) from (select ` + waitsOnShelf + ` and c.deadline <= (select clock_timestamp()) limit 1000) l) end`
	nextWaiting = `case when v.query is null
    then (select c.deadline ` + waitsInInbox + ` and c.deadline > (select clock_timestamp()) order by c.deadline limit 1)
    else (select c.deadline ` + waitsOnShelf + ` and c.deadline > (select clock_timestamp()) order by c.deadline limit 1) end`

	waitsInInbox = `from getwork.item c where c.task_id = s.task_id and c.done_at is null and c.due_at is distinct from 'infinity' and ` + unheld
	waitsOnShelf = `from getwork.candidate c where c.run_id = s.shelf_run and c.rank >= s.shelf_from and ` + ShelfLasts + ` and ` + unheld + `
      and ((select w.closed_at from getwork.work w where w.task_id = s.task_id and ` + LastOf + ` and w.state <> 'held' ` + NewestFirst + `)
        > (select r.started_at from getwork.run r where r.id = s.shelf_run)) is not true`

	// The order is that of the right index: see Binding.
	unheld = `(select true from getwork.work w where w.task_id = s.task_id and w.item = c.item and w.state = 'held' order by w.task_id, w.item, w.slot limit 1) is null`
)

// Failing is true while the task s waits after a failed run, and HeldBack also while it waits to repeat a run that something else
// interrupted. A later end than either can have was written before the database's clock was set back, and delays nobody.
const (
	Failing  = `coalesce(s.failed_until > clock_timestamp() and s.failed_until <= clock_timestamp() + interval '1 minute', false)`
	HeldBack = `(` + Failing + ` or coalesce(s.retry_at > clock_timestamp() and s.retry_at <= clock_timestamp() + interval '30 seconds', false))`
)

// ShelfLasts is true if the shelf of the task s, in its version v, has not expired, or may go on serving after that while its
// refresh runs. A shelf that has ended early may not: its fresh_until is not when it would have expired. ShelfFresh is true if it
// has not expired. Neither is true of a shelf of a later time: see ShelfCame.
const (
	ShelfLasts = `coalesce(s.fresh_until + case when s.fresh_until = s.expires_at then v.stale_for else interval '0' end
    > clock_timestamp() and ` + ShelfCame + `, false)`

	ShelfFresh = `coalesce(s.fresh_until > clock_timestamp() and ` + ShelfCame + `, false)`

	// ShelfCame is false if the run that left the shelf of the task s is of a later time than the clock shows, because that was
	// set back. Nobody knows how old the shelf is, and it would last for too long. Null: there is no shelf.
	ShelfCame = `(select greatest(u.finished_at, u.seen_until) <= clock_timestamp() from getwork.run u where u.id = s.shelf_run)`
)

// RankedAt is what a request or a task shows of a run u: everything that was committed before was seen by the query. A replica may have
// been some time behind.
const RankedAt = `least(u.started_at, u.seen_until)`

// SomeTasks reads the tasks with that name or those ids; nil: all. Deleted tasks, and names and ids that no task has, are left out.
// The ready items of the inboxes with the ids in uncounted are not counted: their Shelf is -1.
func (rs *Records) SomeTasks(ctx context.Context, name *string, ids, uncounted []int64) ([]assign.Task, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectTasks), name, ids, uncounted)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	tasks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (assign.Task, error) {
		var t assign.Task
		var found, free *int64
		var asOf, oldest *time.Time
		err := row.Scan(append([]any{&t.ID, &t.Name, &t.Paused, &t.Version, &t.Waiting, &t.Held, &t.Shelf, &t.RunningSince, &t.UsualSeconds, &t.Failures, &t.LastError, &t.Newest[0], &t.Newest[1],
			&found, &free, &asOf, &oldest, &t.Late, &t.NextDeadline}, IntoSettings(&t.Settings)...)...)
		t.RunningSince, t.NextDeadline = assign.UTC(t.RunningSince), assign.UTC(t.NextDeadline)
		switch {
		case err != nil:
		case t.Inbox():
			t.Ready(t.Shelf)
		case found != nil:
			t.Backlog = &assign.Backlog{Found: *found, Free: *free, AsOf: assign.UTC(asOf), Oldest: assign.UTC(oldest)}
		}
		return t, err
	})
	if err == nil {
		err = rs.paced(ctx, tasks)
	}
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	return tasks, nil
}

// Tasks reads all tasks, ordered by position, those without one last and by name. All pages ask at about the same time when the
// list has changed, so callers share one result and must not change it.
func (rs *Records) Tasks(ctx context.Context) ([]assign.Task, error) {
	return rs.lists.Ask(ctx, struct{}{})
}

// Queued returns the number of callers of [Records.Tasks] who wait for a read that has not begun.
func (rs *Records) Queued() int { return rs.lists.Queued() }

// list reads all tasks once for all callers.
func (rs *Records) list(ctx context.Context, asked []struct{}) ([][]assign.Task, error) {
	tasks, err := rs.SomeTasks(ctx, nil, nil, nil)
	return slices.Repeat([][]assign.Task{tasks}, len(asked)), err
}

// Task reads the task of that name. A name that no task has is refused with [assign.NotFound].
func (rs *Records) Task(ctx context.Context, name string) (assign.Task, error) {
	tasks, err := rs.SomeTasks(ctx, &name, nil, nil)
	if err != nil {
		return assign.Task{}, err
	}
	if len(tasks) == 0 {
		return assign.Task{}, assign.NoTask(name)
	}
	return tasks[0], nil
}

var selectByName = `
select s.task_id, s.name, s.paused, ` + SettingsColumns + `
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.name = $1 and s.deleted_at is null`

// Find reads a task's id and settings, without the counts of [Records.Task]. A user who may not see the task is refused as if
// it did not exist.
func (rs *Records) Find(ctx context.Context, name string, by assign.Who) (id int64, s assign.Settings, err error) {
	err = rs.db.QueryRow(ctx, rs.sql(selectByName), name).Scan(append([]any{&id, &s.Name, &s.Paused}, IntoSettings(&s)...)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, s, assign.NoTask(name)
	}
	if err != nil {
		return 0, s, fmt.Errorf("read the task: %w", err)
	}
	if !by.May(s.Groups) {
		return 0, s, assign.NoTask(name)
	}
	return id, s, nil
}

// TaskFigure is what /metrics shows of a task that is not deleted.
type TaskFigure struct {
	ID      int64
	Name    string
	Paused  bool
	Waiting int     // pending requests, with lingering ones
	Oldest  float64 // seconds for which the oldest request has waited, without lingering ones for which a round found nothing; 0: paused
	Held    int     // work rows
	Shelf   int     // candidates of a shelf that is handed out, up to 100,000; of an inbox, items that can be handed out, up to 10,000
	Usual   float64 // seconds that a run of its query usually takes; 0: not known
	Late    int     // what is held, on the shelf or in the inbox although its deadline is over

	Pace   assign.Pace `db:"-"`
	Nobody int64       `db:"-"` // items that need what nobody known has
}

// A lingering request for which a round found nothing has a reason, also after a change of the task has ended its look_after.
// Inboxes are counted up to 10,000: all tasks are read, and a scrape waits for a second at most.
const selectTaskFigures = `
select s.task_id, s.name, s.paused, r.waiting, r.oldest,
  held.n,
  ` + readyItems + `10000` + orShelf + `,
  coalesce(extract(epoch from s.usual), 0)::float8,
  held.late + ` + lateWaiting + `
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
cross join lateral (
  select count(*) as waiting,
    coalesce(extract(epoch from clock_timestamp() - min(r.created_at) filter (where r.look_after is null and r.reason is null and not s.paused)), 0)::float8 as oldest
  from getwork.work_requested r
  where r.task_id = s.task_id and r.state = 'pending'
) r
cross join lateral (
  select count(*) as n, count(*) filter (where w.deadline <= (select clock_timestamp())) as late
  from getwork.work w
  where w.task_id = s.task_id and w.state = 'held') held
where s.deleted_at is null
order by s.name`

// TaskFigures reads the figures of all tasks, ordered by name.
func (rs *Records) TaskFigures(ctx context.Context) ([]TaskFigure, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectTaskFigures))
	if err != nil {
		return nil, fmt.Errorf("read the tasks' figures: %w", err)
	}
	figures, err := pgx.CollectRows(rows, pgx.RowToStructByPos[TaskFigure])
	if err != nil {
		return nil, fmt.Errorf("read the tasks' figures: %w", err)
	}
	tasks := make([]assign.Task, len(figures))
	for i := range figures {
		tasks[i].ID = figures[i].ID
	}
	if err := rs.paced(ctx, tasks); err != nil {
		return nil, fmt.Errorf("read the tasks' figures: %w", err)
	}
	for i := range figures {
		figures[i].Pace, figures[i].Nobody = tasks[i].Pace, tasks[i].ItemsNobody
	}
	return figures, nil
}

var selectVersions = `
select v.version, v.created_at, v.created_by, v.name, v.paused,
  array(select o.name from getwork.task_state o where o.task_id = any(v.Conflicts_with) and o.deleted_at is null order by o.name),
  ` + SettingsColumns + `
from getwork.task_version v
where v.task_id = $1 and v.version < $2::bigint
order by v.version desc
limit $3`

// Versions reads a task's versions, newest first, starting before the given one (0: with the newest). Each has the name that
// the task had then. Other tasks that it refers to have their present names. A name that no task has is refused with
// [assign.NotFound].
func (rs *Records) Versions(ctx context.Context, task string, before int64, limit int) ([]assign.Version, error) {
	t, err := rs.Task(ctx, task)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = 1 << 31
	}
	return rs.VersionsOf(ctx, t.ID, before, limit)
}

// VersionsOf is [Records.Versions] for a task's id.
func (rs *Records) VersionsOf(ctx context.Context, task, before int64, limit int) ([]assign.Version, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectVersions), task, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	versions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (assign.Version, error) {
		var v assign.Version
		err := row.Scan(append([]any{&v.Version, &v.CreatedAt, &v.CreatedBy, &v.Name, &v.Paused, &v.Conflicts}, IntoSettings(&v.Settings)...)...)
		v.CreatedAt = v.CreatedAt.UTC()
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	return versions, nil
}

const selectTaskLog = `
select version, n, act, at, by
from (
  (select v.version, 0 as n, case v.version when 1 then 'created' else 'changed' end as act, v.created_at as at, v.created_by as by
   from getwork.task_version v
   where v.task_id = $1 and v.version <= $2 and (v.version, 0) < ($2, $3)
   order by v.version desc
   limit $4)
  union all
  (select p.version, p.n, case when p.paused then 'paused' else 'resumed' end, p.at, p.by
   from getwork.task_pause p
   where p.task_id = $1 and (p.version, p.n) < ($2, $3)
   order by p.version desc, p.n desc
   limit $4)
) l
order by version desc, n desc
limit $4`

// TaskLog reads when a task was changed, paused and resumed, and by whom, newest first, starting before an entry's key (0: with
// the newest).
func (rs *Records) TaskLog(ctx context.Context, task string, before int64, limit int) ([]assign.TaskChange, error) {
	t, err := rs.Task(ctx, task)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := rs.db.Query(ctx, rs.sql(selectTaskLog), t.ID, int32(before>>32), int32(min(before&math.MaxUint32, math.MaxInt32)), limit)
	if err != nil {
		return nil, fmt.Errorf("read the task's log: %w", err)
	}
	changes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c assign.TaskChange, err error) {
		err = row.Scan(&c.Version, &c.N, &c.Act, &c.At, &c.By)
		c.At = c.At.UTC()
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the task's log: %w", err)
	}
	return changes, nil
}

const runColumns = `u.id, u.version, u.node, u.state, u.started_at, u.finished_at, u.error, u.given, u.blocked, u.passed_over, u.left_out,
  u.candidates, u.cut, ` + RunMS + `, u.task_id`

// RunMS is how many milliseconds a run u took, or null while it is under way. It is at least 0, because the clock may have
// been set back. It is computed before the cast to float8, which would turn 1691.39 into 1691.3899999999999.
const RunMS = `case when u.finished_at is not null then (greatest(extract(epoch from u.finished_at - u.started_at), 0) * 1000)::float8 end`

func scanRun(row pgx.CollectableRow) (assign.Run, error) {
	var r assign.Run
	err := row.Scan(&r.ID, &r.Version, &r.Node, &r.State, &r.StartedAt, &r.FinishedAt, &r.Error, &r.Given, &r.Blocked, &r.PassedOver, &r.LeftOut,
		&r.Candidates, &r.Cut, &r.DurationMS, &r.TaskID)
	r.StartedAt, r.FinishedAt = r.StartedAt.UTC(), assign.UTC(r.FinishedAt)
	return r, err
}

const selectRuns = `
select ` + runColumns + `
from getwork.run u
where u.task_id = $1 and u.id < $2
order by u.id desc
limit $3`

// Runs reads a task's runs, newest first, starting before the given id (0: with the newest). A name that no task has is refused
// with [assign.NotFound].
func (rs *Records) Runs(ctx context.Context, name string, before int64, limit int) ([]assign.Run, error) {
	t, err := rs.Task(ctx, name)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = 1<<63 - 1
	}
	rows, err := rs.db.Query(ctx, rs.sql(selectRuns), t.ID, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	runs, err := pgx.CollectRows(rows, scanRun)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	return runs, nil
}
