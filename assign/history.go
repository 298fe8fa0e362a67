package assign

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
)

const runColumns = `u.id, u.version, u.node, u.state, u.started_at, u.finished_at, u.error, u.given, u.blocked, u.passed_over,
  u.candidates, u.cut, ` + runMS + `, u.task_id`

// runMS is how long a run u took; null: it is under way. The clock may have been set back meanwhile.
// It is reckoned before it is a float8: as one, 1691.39 would be told as 1691.3899999999999.
const runMS = `case when u.finished_at is not null then (greatest(extract(epoch from u.finished_at - u.started_at), 0) * 1000)::float8 end`

func scanRun(row pgx.CollectableRow) (Run, error) {
	var r Run
	err := row.Scan(&r.ID, &r.Version, &r.Node, &r.State, &r.StartedAt, &r.FinishedAt, &r.Error, &r.Given, &r.Blocked, &r.PassedOver,
		&r.Candidates, &r.Cut, &r.DurationMS, &r.TaskID)
	r.StartedAt, r.FinishedAt = r.StartedAt.UTC(), utc(r.FinishedAt)
	return r, err
}

const selectRuns = `
select ` + runColumns + `
from getwork.run u
where u.task_id = $1 and u.id < $2
order by u.id desc
limit $3`

// Runs reads a task's runs, newest first, those before the given id (0: from the newest).
func (e *Engine) Runs(ctx context.Context, name string, before int64, limit int) ([]Run, error) {
	t, err := e.Task(ctx, name)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = 1<<63 - 1
	}
	rows, err := e.api.Query(ctx, e.SQL(selectRuns), t.ID, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	runs, err := pgx.CollectRows(rows, scanRun)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	return runs, nil
}

// WorkHistory reads work, newest first. A name that no task has is refused with [NotFound], a state that there is not
// with [Invalid]. However long the history is, work of an item, a user or a task is found by index; what else is asked
// for is sifted out of what that index gives.
func (e *Engine) WorkHistory(ctx context.Context, f WorkFilter) ([]Work, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	var task int64
	if f.Task != "" {
		if !IsTaskName(f.Task) {
			return nil, NoTask(f.Task)
		}
		var err error
		if task, _, err = e.find(ctx, f.Task, Who{Anything: true}); err != nil {
			return nil, err
		}
	}
	statement, args := history(task, f)
	// Planned for these values each time: of a user and a task either can be the rare one.
	rows, err := e.api.Query(ctx, e.SQL(statement), append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("read work: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Work, error) { return scanWork(row) })
	if err != nil {
		return nil, fmt.Errorf("read work: %w", err)
	}
	return found, nil
}

// Each way into the history reads one index backwards, from $1 on, and stops after $2 rows. The equality with what is
// asked for is written as a range of the whole index key, and so is the order: with a plain equality the planner may take
// the primary key for the order, and walk through a million rows of others, whenever its statistics, or a plan made
// for any value, tell it that matches are frequent.
type way struct{ where, order string }

var (
	byID   = way{`w.id < $1`, `w.id desc`}
	byTask = way{`w.task_id + 0 >= $3 and (w.task_id + 0, w.id) < ($3, $1)`, `w.task_id + 0 desc, w.id desc`} // see work_task
	byUser = way{`w.user_name >= $3 and (w.user_name, w.id) < ($3, $1)`, `w.user_name desc, w.id desc`}
	byItem = way{`w.task_id = s.task_id and w.item >= $3 and (w.item, w.id) < ($3, $1)`, `w.item desc, w.id desc`}
)

const (
	historyHead = `
select ` + workColumns + `
from (
  select w.*
  from getwork.work w
  where `
	historyTail = `
  limit $2
) w join getwork.task_state s on s.task_id = w.task_id
order by w.id desc`

	// The index of items begins with the task: the newest rows of each, and the newest of all those.
	historyOfItem = `
select ` + workColumns + `
from getwork.task_state s
cross join lateral (
  select w.*
  from getwork.work w
  where `
	historyOfItemTail = `
  limit $2
) w
where $4::bigint in (0, s.task_id)
order by w.id desc
limit $2`
)

// history is the statement that reads the work that f asks for; task is the id of the task that it names, or 0. The
// state stands in the statement's text, so that indexes of one state can be used; check has seen it.
func history(task int64, f WorkFilter) (statement string, args []any) {
	if f.Before == 0 {
		f.Before = math.MaxInt64
	}
	args = []any{f.Before, f.Limit}
	also := ""
	if f.State != "" {
		also = " and w.state = '" + string(f.State) + "'"
	}
	head, tail, by := historyHead, historyTail, byID
	switch {
	case f.Item != "":
		head, tail, by, args = historyOfItem, historyOfItemTail, byItem, append(args, f.Item, task)
		if f.User != "" {
			also, args = also+" and w.user_name || '' = $5", append(args, f.User) // not by his index: an item has few rows
		}
	case f.User != "":
		by, args = byUser, append(args, f.User)
		if task != 0 {
			also, args = also+" and w.task_id + 0 = $4", append(args, task) // whose index may be the better one
		}
	case task != 0:
		by, args = byTask, append(args, task)
	}
	return head + by.where + also + "\n  order by " + by.order + tail, args
}
