package records

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
)

// WorkHistory reads work, newest first. A name that no task has is refused with [assign.NotFound], an unknown state with
// [assign.Invalid]. However long the history is, the work of an item, a user or a task is found by an index; further
// conditions filter what that index returns. A search for a value is refused with [assign.Busy] while two others are under way on
// this node, and with [assign.Invalid] if it takes longer than ten seconds. Details that are too much for one page are left out.
func (rs *Records) WorkHistory(ctx context.Context, f assign.WorkFilter) ([]assign.Work, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	var task int64
	if f.Task != "" {
		if !assign.IsTaskName(f.Task) {
			return nil, assign.NoTask(f.Task)
		}
		var err error
		if task, _, err = rs.Find(ctx, f.Task, assign.Who{Anything: true}); err != nil {
			return nil, err
		}
	}
	statement, args := History(task, f)
	if f.Value != "" {
		return rs.searchWork(ctx, statement, args)
	}
	// Planned for these values each time: either the user or the task may be the rarer one.
	rows, err := rs.db.Query(ctx, rs.sql(statement), append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("read work: %w", err)
	}
	found, err := pgx.CollectRows(rows, NewWorkScan().Within(&assign.Carried{}).Scan)
	if err != nil {
		return nil, fmt.Errorf("read work: %w", err)
	}
	return found, nil
}

const selectWork = `select ` + WorkColumns + ` from getwork.work w join getwork.task_state s on s.task_id = w.task_id where w.id = $1`

// Work reads work in any state by its id. An id that no work has is refused with [assign.NotFound].
func (rs *Records) Work(ctx context.Context, id int64) (assign.Work, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectWork), id)
	if err != nil {
		return assign.Work{}, fmt.Errorf("read work: %w", err)
	}
	work, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (assign.Work, error) { return ScanWork(row) })
	if errors.Is(err, pgx.ErrNoRows) {
		return assign.Work{}, assign.Refuse(assign.NotFound, "no work %d; GET /api/v1/pipeline lists yours", id)
	}
	if err != nil {
		return assign.Work{}, fmt.Errorf("read work: %w", err)
	}
	return work, nil
}

// The order makes it a search in work_past_item: see LastOf.
const selectEarlier = `
select coalesce(v.notes, 'holders') = 'holders' or $4, w.id, w.user_name, w.instance, w.state, w.closed_at, w.closed_by, w.code, w.note, w.error
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
left join lateral (
  select *
  from getwork.work w
  where w.task_id = s.task_id and w.item between $2 and $2 and w.state <> 'held' and w.id <> $3
  order by w.item desc, w.id desc
  limit 10
) w on true
where s.task_id = $1`

// Earlier reads how the item was let go of lastly under its task, besides this work, newest first; nil: the task keeps that from those
// who are no managers.
func (rs *Records) Earlier(ctx context.Context, w assign.Work, manages bool) ([]assign.Ending, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectEarlier), w.TaskID, w.Item, w.ID, manages)
	if err != nil {
		return nil, fmt.Errorf("read the item's earlier work: %w", err)
	}
	var shown bool
	var id *int64
	var user, instance, state *string
	var at *time.Time
	var e assign.Ending
	earlier := []assign.Ending{}
	_, err = pgx.ForEachRow(rows, []any{&shown, &id, &user, &instance, &state, &at, &e.ClosedBy, &e.Code, &e.Note, &e.Error}, func() error {
		if id != nil {
			e.ID, e.User, e.Instance, e.State, e.ClosedAt = *id, *user, *instance, assign.WorkState(*state), at.UTC()
			earlier = append(earlier, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the item's earlier work: %w", err)
	}
	if !shown {
		return nil, nil
	}
	return earlier, nil
}

// selectLinked selects the endings of the completed work $5 that a work's item went on from, and of what went on from the work $3. That is
// of the same item, in the tasks that one of its task's versions names.
const selectLinked = `
select w.id, w.user_name, w.instance, w.state, w.closed_at, w.closed_by, w.code, w.note, w.error
from (
  select w.* from getwork.work w where w.id = nullif($5::bigint, 0) and w.state <> 'held'
  union all
  select w.*
  from (select distinct (v.on_complete->>'task_id')::bigint as id from getwork.task_version v where v.task_id = $1 and v.on_complete is not null) t
  cross join lateral (
    select *
    from getwork.work w
    where w.task_id = t.id and w.item between $2 and $2 and w.state <> 'held' and w.from_work = $3
    order by w.item desc, w.id desc
    limit 10
  ) w
) w
join getwork.task_state s on s.task_id = w.task_id
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where coalesce(v.notes, 'holders') = 'holders' or $4
order by w.id desc`

// Linked reads how the work was let go of that the item went on from, and what went on from this work, newest first, as far as those tasks
// show it to those who are no managers.
func (rs *Records) Linked(ctx context.Context, w assign.Work, manages bool) ([]assign.Ending, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectLinked), w.TaskID, w.Item, w.ID, manages, w.From)
	if err != nil {
		return nil, fmt.Errorf("read what the work went on from, and to: %w", err)
	}
	linked, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e assign.Ending, err error) {
		err = row.Scan(&e.ID, &e.User, &e.Instance, &e.State, &e.ClosedAt, &e.ClosedBy, &e.Code, &e.Note, &e.Error)
		e.ClosedAt = e.ClosedAt.UTC()
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read what the work went on from, and to: %w", err)
	}
	return linked, nil
}

// Disposed is work for whoever lets go of it.
type Disposed struct {
	Work  assign.Work
	Live  bool // it is held, and its lease is not over
	after *assign.Duration
}

// DisposedColumns are the columns that [NewDisposedScan] reads; s is task_state, w work.
const DisposedColumns = WorkColumns + `, (extract(epoch from w.after) * 1000000)::bigint,
  w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())`

// NewDisposedScan returns a function that reads rows of DisposedColumns, and of further columns into also. Their details are left out
// as carried says; nil: never.
func NewDisposedScan(carried *assign.Carried, also ...any) func(pgx.CollectableRow) (Disposed, error) {
	var d Disposed
	scan := NewWorkScan(append([]any{&d.after, &d.Live}, also...)...)
	if carried != nil {
		scan.Within(carried)
	}
	return func(row pgx.CollectableRow) (_ Disposed, err error) {
		d.Work, err = scan.Scan(row)
		return d, err
	}
}

// OutcomeColumns are the columns that IntoOutcomes reads; s is task_state, v its task_version.
const OutcomeColumns = `s.name, s.version, v.outcomes, coalesce(v.require_code, false), v.result`

// IntoOutcomes returns the targets for a scan of OutcomeColumns.
func IntoOutcomes(r *assign.OutcomeRules) []any {
	return []any{&r.Task, &r.Version, &r.Outcomes, &r.RequireCode, &r.Result}
}

const selectDisposed = `
select ` + DisposedColumns + `, ` + OutcomeColumns + `
from getwork.work w join getwork.task_state s using (task_id)
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where w.id = $1`

// Disposed is Work for its holder, with what its task says of dispositions now.
func (rs *Records) Disposed(ctx context.Context, id int64) (d Disposed, rules assign.OutcomeRules, err error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectDisposed), id)
	if err != nil {
		return d, rules, fmt.Errorf("read work: %w", err)
	}
	d, err = pgx.CollectExactlyOneRow(rows, NewDisposedScan(nil, IntoOutcomes(&rules)...))
	if errors.Is(err, pgx.ErrNoRows) {
		return d, rules, assign.NoWork(id)
	}
	if err != nil {
		return d, rules, fmt.Errorf("read work: %w", err)
	}
	return d, rules, nil
}

// ClosedAs reports whether work was closed in just that way. What the disposition leaves to its code was as the code said then.
func (f *Disposed) ClosedAs(d assign.Disposition) bool {
	w := &f.Work
	if string(assign.Canonical(d.Result)) != string(w.Result) {
		return false
	}
	if d.Code != nil {
		return w.Code != nil && *w.Code == *d.Code && (d.Outcome == "" || w.State == d.State()) &&
			(d.After == nil || f.after != nil && *f.after == *d.After) && (d.To == nil || w.ToOthers == d.ToOthers())
	}
	if w.Code != nil && !strings.HasPrefix(*w.Code, "_") {
		return false
	}
	if (d.After == nil) != (f.after == nil) || d.After != nil && *d.After != *f.after || w.ToOthers != d.ToOthers() {
		return false
	}
	if d.Outcome == "fail" && w.Exhausted {
		return w.State == "never"
	}
	return w.State == d.State() && !w.Exhausted
}

// A way reads work before the id $1, and stops after $2 rows. Work that is over is read by one index, backwards: its equality is
// written as a range of the whole index key, and so is its order. With a plain equality the planner may use the primary key for
// the order, and walk through a million rows of others, whenever its statistics or a generic plan suggest that matches are
// frequent. Held work has indexes of its own, and there is little of it beside the history: all of it that matches is sorted,
// and "+ 0" keeps the primary key from being used.
type way struct{ held, past, pastOrder, inState string }

// pastIndex hides the state from PostgreSQL, so that it can't read an index of all work in that state, which has another order.
// The work of one item is short enough for any index.
const (
	anyIndex  = `w.state = `
	pastIndex = `w.state <> 'held' and w.state || '' = `
)

var (
	byTask = way{`w.task_id = $3`, `w.task_id + 0 >= $3 and (w.task_id + 0, w.id) < ($3, $1)`, `w.task_id + 0 desc, w.id desc`, pastIndex} // see work_past_task
	byUser = way{`w.user_name = $3`, `w.user_name >= $3 and (w.user_name, w.id) < ($3, $1)`, `w.user_name desc, w.id desc`, pastIndex}
	byItem = way{`w.task_id = s.task_id and w.item = $3`, `w.task_id = s.task_id and w.item >= $3 and (w.item, w.id) < ($3, $1)`, `w.item desc, w.id desc`, anyIndex}
)

const (
	historyHead = `
select ` + WorkColumns + `
from (`
	historyTail = `
) w join getwork.task_state s on s.task_id = w.task_id
order by w.id desc
limit $2`

	// Every state, newest first.
	historyOfAll = `
  select w.*
  from getwork.work w
  where w.id < $1%s
  order by w.id desc
  limit $2`

	historyOfHeld = `
  (select w.*
  from getwork.work w
  where %s and w.id + 0 < $1 and w.state = 'held'%s
  order by w.id + 0 desc
  limit $2)`
	historyOfPast = `
  (select w.*
  from getwork.work w
  where %s and %s%s
  order by %s
  limit $2)`

	// The index of items begins with the task. The statement reads the newest rows of each task, and returns the newest of
	// all those.
	historyOfItem = `
select ` + WorkColumns + `
from getwork.task_state s
cross join lateral (`
	historyOfItemTail = `
) w
where $4::bigint in (0, s.task_id)
order by w.id desc
limit $2`
)

// withValue finds a value in the details, whatever its name. Its parameters follow all others.
const withValue = ` and w.assigned_at > clock_timestamp() - $within::bigint * interval '1 microsecond'
    and case json_typeof(w.details) when 'object' then
      exists (select from json_each_text(w.details) d where position(lower($value::text) in lower(d.value)) > 0) end`

// searchPatience is how long a search for a value may take. It holds one of the connections that calls use.
const searchPatience = 10 * time.Second

// searchWork executes a search for a value in work's details. Two at a time are enough for a node: more would keep clicks from
// their connections.
func (rs *Records) searchWork(ctx context.Context, statement string, args []any) (found []assign.Work, err error) {
	select {
	case rs.searches <- struct{}{}:
		defer func() { <-rs.searches }()
	default:
		return nil, assign.Refuse(assign.Busy, "others search for values now; try again in a moment")
	}
	begin := fmt.Sprintf(`begin isolation level read committed read only; set local statement_timeout = %d`, rs.patience.Milliseconds())
	err = pgx.BeginTxFunc(ctx, rs.db, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, rs.sql(statement), append([]any{pgx.QueryExecModeExec}, args...)...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, NewWorkScan().Within(&assign.Carried{}).Scan)
		return err
	})
	if pg.Cancelled(err) && ctx.Err() == nil {
		return nil, assign.RefuseField("value", "the search was given up after %v; narrow it: name the item, the user or the state, or a task with less work", rs.patience)
	}
	if err != nil {
		return nil, fmt.Errorf("search work: %w", err)
	}
	return found, nil
}

// of returns the sub-query for a state, "" for every state, and for further conditions.
func (y way) of(state, also string) string {
	held, closed := fmt.Sprintf(historyOfHeld, y.held, also), `w.state <> 'held'`
	switch state {
	case "held":
		return held
	case "":
	default:
		closed = y.inState + `'` + state + `'`
	}
	past := fmt.Sprintf(historyOfPast, y.past, closed, also, y.pastOrder)
	if state != "" {
		return past
	}
	return held + "\n  union all" + past
}

// History returns the statement that reads the work that f asks for; task is the id of the task that f names, or 0. The state
// is part of the statement's text, so that PostgreSQL knows whether the work is held; f.Check has validated it.
func History(task int64, f assign.WorkFilter) (statement string, args []any) {
	if f.Before == 0 {
		f.Before = math.MaxInt64
	}
	args = []any{f.Before, f.Limit}
	state, also := string(f.State), ""
	if f.Value != "" {
		also = withValue
	}
	switch {
	case f.Item != "":
		args = append(args, f.Item, task)
		if f.User != "" {
			also, args = also+" and w.user_name || '' = $5", append(args, f.User) // not by the user's index: an item has few rows
		}
		statement = historyOfItem + byItem.of(state, also) + historyOfItemTail
	case f.User != "":
		args = append(args, f.User)
		if task != 0 {
			also, args = also+" and w.task_id + 0 = $4", append(args, task) // either index may be the better one
		}
		statement = historyHead + byUser.of(state, also) + historyTail
	case task != 0:
		args = append(args, task)
		statement = historyHead + byTask.of(state, also) + historyTail
	default:
		if state != "" {
			also += " and w.state = '" + state + "'"
		}
		statement = historyHead + fmt.Sprintf(historyOfAll, also) + historyTail
	}
	if f.Value != "" {
		args = append(args, assign.ValueWithin.Microseconds(), f.Value)
		statement = strings.NewReplacer("$within", fmt.Sprintf("$%d", len(args)-1), "$value", fmt.Sprintf("$%d", len(args))).Replace(statement)
	}
	return statement, args
}
