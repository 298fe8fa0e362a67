package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/records"
	"getwork/notify"
)

// backOffOf is the least time for which the item of work w waits after it failed.
const backOffOf = `least(v.backoff * 2 ^ least(w.attempt - 1, 20), interval '24 hours')`

// closedAt limits the time of closing work w to the end of its lease.
const closedAt = `closed_at = least(clock_timestamp(), w.lease_expires_at)`

// closeWork repeats what it relies on: the work is still held, and its lease is not over. If it returns no row, the work was
// lost meanwhile. After a failure the item waits for the task's backoff, twice as long after each further failure, at most a
// day, and up to a fifth longer at random, so that items that failed together do not come back together. The time of closing
// is read a little after the condition on the lease, and is limited to the lease's end. What was judged by the task's codes is closed only
// while these are in force.
var closeWork = `
with closed as (
  update getwork.work w
  set state = case when l.exhausted then 'never' else $2 end, exhausted = l.exhausted,
      ` + closedAt + `, closed_by = $3, closed_xid = pg_current_xact_id(),
      after = $4 * interval '1 microsecond', to_others = $5, note = $6, error = $7, code = $8, result = $9,
      available_at = case
        when $2 = 'returned' then clock_timestamp() + $4 * interval '1 microsecond'
        when $2 = 'failed' and not l.exhausted then
          clock_timestamp() + ` + backOffOf + ` * (1 + random() / 5)
      end
  from getwork.work o
  join getwork.task_state s on s.task_id = o.task_id
  join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  cross join lateral (select coalesce($2 = 'failed' and o.attempt >= v.max_attempts, false) as exhausted) l
  where w.id = $1 and o.id = w.id and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
    and (s.version = $10 or $10 is null and ($2 = 'failed' or v.require_code is not true))
  returning w.id, w.task_id, w.item, w.state, w.available_at, v.done_by, array[w.user_name] as users,
    v.query is null and w.exclusive is null and w.state = 'completed' as quiet, ` + onwardOf + ` as onward
), ` + settleCompleted + `
select c.quiet, case when ` + finished + ` then c.onward end from closed c`

// rulesChange is how often a task's codes may change beside one disposition.
const rulesChange = 5

// Dispose closes held work for its holder, or for a manager. Repeating it changes nothing. [assign.LeaseLost]: the lease ran
// out before. [assign.AlreadyClosed]: it was closed in another way. [assign.Mismatch]: it is against the task's codes as they are now.
// [assign.NotFound]: it was never theirs, and asManager is false.
func (e *Engine) Dispose(ctx context.Context, id int64, d assign.Disposition, by assign.Holder, asManager bool) (assign.Work, error) {
	if err := d.Check(); err != nil {
		return assign.Work{}, err
	}
	closed := false
	for try := 1; ; try++ {
		found, rules, err := e.Records.Disposed(ctx, id)
		w := found.Work
		switch {
		case err != nil:
			return assign.Work{}, err
		case !asManager && w.Holder() != by:
			return assign.Work{}, assign.NoWork(id)
		case closed:
			e.CountClosed(w.TaskID, w.State, 1)
			return w, nil
		case !found.Live:
			if err := judge(&found, d); err != nil {
				return assign.Work{}, err
			}
			return w, nil
		}
		said, err := rules.Apply(d)
		if err != nil {
			return assign.Work{}, err
		}
		e.Steps(ctx, StepJudged)
		closed, err = e.close(ctx, w, said, rules.Version, by)
		if err == nil && !closed && try == rulesChange {
			err = rulesChanging(id)
		}
		if err != nil {
			return assign.Work{}, err
		}
	}
}

// close closes held work, and reports whether it has: not if it was lost meanwhile, or its task's codes have changed.
func (e *Engine) close(ctx context.Context, w assign.Work, d assign.Disposition, version int, by assign.Holder) (bool, error) {
	var quiet bool // nothing became free: the item is done
	var on *onward
	var to []int64
	err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		err := tx.QueryRow(ctx, e.SQL(closeWork), w.ID, d.State(), by.User, d.After, d.ToOthers(), d.Note, d.Error, codeOf(d), resultOf(d), judgedBy(d, version)).Scan(&quiet, &on)
		if err == nil && on != nil && on.Draws(w.ID) {
			to, err = e.pushOnward(ctx, tx, []int64{w.ID}, []int64{on.To})
		}
		return []notify.Change{{Task: w.TaskID, Work: []int64{w.ID}}}, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("close work: %w", err)
	}
	if !quiet { // before any further read: the caller may be gone by now
		e.WakeFreed(ctx, w.TaskID)
	}
	e.pushedOnward(to)
	return true, nil
}

// codeOf returns the code that is kept of a disposition.
func codeOf(d assign.Disposition) *string {
	if d.Outcome == "fail" {
		return new(assign.CodeFailed)
	}
	return d.Code
}

func resultOf(d assign.Disposition) *string {
	if result := assign.Canonical(d.Result); result != nil {
		return new(string(result))
	}
	return nil
}

// judgedBy returns the version of the task's settings by which the disposition was judged; nil: any that asks for no code.
func judgedBy(d assign.Disposition, version int) *int {
	if d.Code == nil && d.Result == nil {
		return nil
	}
	return &version
}

func rulesChanging(id int64) error {
	return assign.Refuse(assign.Busy, "the task's codes are being changed; work %d is as it was: try again", id)
}

// judge returns nil if work that is not to be closed any more had been closed in just that way.
func judge(f *records.Disposed, d assign.Disposition) error {
	w := &f.Work
	switch {
	case w.State == "held", w.RanOut():
		return leaseLostErr(*w)
	case f.ClosedAs(d):
		return nil
	case w.Exhausted:
		return assign.Refuse(assign.AlreadyClosed, "work %d has failed for the last time: its attempts are used up", w.ID)
	}
	return assign.Refuse(assign.AlreadyClosed, "work %d was closed as %s; it can't be changed any more", w.ID, w.State)
}

const (
	// given are the columns of dispositions, one row each.
	given = `unnest((select $1::bigint[]), $2::text[], $3::bigint[], $4::boolean[], $5::text[], $6::text[], $9::text[], $10::text[], $11::integer[])
    as d (id, state, after, to_others, note, error, code, result, version)`

	// closeMany is closeWork for many rows, which are locked in the order of ids: two calls that name the same work wait for each other
	// in one direction only.
	//
	// Each row is looked up by its id: "offset 0" and "case" keep PostgreSQL from the indexes of what is held. It expects next to nothing
	// there, and would compare each row of the call with everything that anybody holds. The sub-query is as in selectTickets.
	formatCloseMany = `
with mine as materialized (
  select w.id, w.task_id, w.attempt, d.state, d.after * interval '1 microsecond' as after, d.to_others, d.note, d.error, d.code, d.result, d.version
  from (select * from ` + given + ` order by d.id) d cross join lateral (
    select w.id, w.task_id, w.attempt
    from getwork.work w
    where w.id = d.id and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
      and ($7 or w.user_name = $8 and w.instance = $12)
    offset 0
    for update) w
), ended as (
  update getwork.work w
  set state = case when l.exhausted then 'never' else d.state end, exhausted = l.exhausted,
      ` + closedAt + `, closed_by = $8, closed_xid = pg_current_xact_id(),
      after = d.after, to_others = d.to_others, note = d.note, error = d.error, code = d.code, result = d.result::json,
      available_at = case
        when d.state = 'returned' then clock_timestamp() + d.after
        when d.state = 'failed' and not l.exhausted then
          clock_timestamp() + ` + backOffOf + ` * (1 + random() / 5)
      end
  from mine d
  join getwork.task_state s on s.task_id = d.task_id
  join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  cross join lateral (select coalesce(d.state = 'failed' and d.attempt >= v.max_attempts, false) as exhausted) l
  where w.id = d.id and case when w.state = 'held' then (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
    and case when d.version is null then d.state = 'failed' or v.require_code is not true else s.version = d.version end end
  returning w.id, w.task_id, w.item, w.state, w.available_at, v.done_by, w.user_name,
    v.query is null and w.exclusive is null and w.state = 'completed' as quiet, ` + onwardOf + ` as onward
), %s
select c.id, c.task_id, c.state, c.quiet, case when c.onward is not null and ` + finishedAmong + ` then c.onward end from ended c`

	// Each row is looked up. The planner expects the rows of a call to be cheaper in a read of the whole table, while that is small.
	selectMany = `
select ` + records.DisposedColumns + `
from unnest($1::bigint[]) as d (id)
cross join lateral (select o.* from getwork.work o where o.id = d.id offset 0) w
join getwork.task_state s using (task_id)`

	// onwardOf is where a completion of w, with its code, goes on to, if it is drawn. An item of an inbox goes with the completion that finishes it.
	onwardOf = `case when w.state = 'completed' and (v.on_complete->'when' is null or v.on_complete #> '{when,code}' ? w.code) then v.on_complete || jsonb_build_object('inbox', v.query is null) end`

	// "case" makes it a hash: joined, each closed work would be compared with each item.
	finished      = `c.onward is not null and (not (c.onward->>'inbox')::boolean or (select s.done from settled s))`
	finishedAmong = `(not (c.onward->>'inbox')::boolean
    or c.id in (select f.id from closed f where case when (f.task_id, f.item) in (select s.task_id, s.item from settled s where s.done) then true end))`

	// Whose work it is that a disposition with a code, or with a result, names, and what its tasks say of them.
	selectTheirTasks = `
select w.id, w.task_id, w.user_name, w.instance, w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
from unnest($1::bigint[]) as d (id)
cross join lateral (select o.* from getwork.work o where o.id = d.id offset 0) w`
	selectTheirRules = `
select s.task_id, ` + records.OutcomeColumns + `
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.task_id = any($1)`
)

var (
	closeMany = fmt.Sprintf(formatCloseMany, fmt.Sprintf(lockEnded, `, array[e.user_name] as users`)+settleCompleted)

	// A manager may complete one item for several holders.
	closeAnybodys = fmt.Sprintf(formatCloseMany,
		fmt.Sprintf(lockEnded, `, array_agg(e.user_name) filter (where e.state = 'completed') over (partition by e.task_id, e.item) as users`)+settleCompleted)
)

// DisposeMany disposes of much work in one transaction, and judges each as [Engine.Dispose] would: the results have the order of the
// dispositions. All details together are bounded as in any answer. If any work is named twice, or more than [assign.MaxMany],
// nothing is done. brief leaves the work out of the results; what the call has closed is not read then.
func (e *Engine) DisposeMany(ctx context.Context, all []assign.Disposal, by assign.Holder, asManager, brief bool) ([]assign.Result, error) {
	ids := make([]int64, len(all))
	for i, d := range all {
		ids[i] = d.ID
	}
	if err := assign.CheckMany(ids, "dispositions", ".id"); err != nil {
		return nil, err
	}
	results := make([]assign.Result, len(all))
	var left []int // the places of what is still to be judged
	coded := false
	for i, d := range all {
		if err := d.Check(); err != nil {
			results[i] = refused(d.ID, err)
			continue
		}
		left, coded = append(left, i), coded || d.Code != nil || d.Result != nil
	}
	carried := new(assign.Carried)
	for try := 1; len(left) > 0; try++ {
		var c disposals
		if !coded && try == 1 { // nothing that the tasks could refuse but that a code is missing, which closeMany sees
			for _, i := range left {
				c.add(all[i], nil)
			}
		} else if err := e.judgeCodes(ctx, all, &left, &c, results, by, asManager); err != nil {
			return nil, err
		}
		closed, err := e.closeMany(ctx, &c, by, asManager)
		if err != nil {
			return nil, err
		}
		read := left
		if brief {
			read = nil
			for _, i := range left {
				if id := all[i].ID; closed[id] {
					results[i] = assign.Result{ID: id, Status: 200}
				} else {
					read = append(read, i)
				}
			}
		}
		left = nil
		if len(read) == 0 {
			break
		}
		for n, i := range read {
			ids[n] = all[i].ID
		}
		found, err := e.works(ctx, ids[:len(read)], carried)
		if err != nil {
			return nil, err
		}
		for _, i := range read {
			d := all[i]
			f := found[d.ID]
			switch {
			case f == nil || !asManager && f.Work.Holder() != by:
				err = assign.NoWork(d.ID)
			case closed[d.ID]:
				err = nil
			case f.Live && try < rulesChange: // its task asks for a code, or its codes have changed
				left = append(left, i)
				continue
			case f.Live:
				err = rulesChanging(d.ID)
			default:
				err = judge(f, d.Disposition)
			}
			switch {
			case err != nil:
				results[i] = refused(d.ID, err)
			case brief:
				results[i] = assign.Result{ID: d.ID, Status: 200}
			default:
				results[i] = assign.Result{ID: d.ID, Status: 200, Work: &f.Work}
			}
		}
	}
	return results, nil
}

// judgeCodes judges by their tasks' codes those of left that are still held, and adds them to c. What is refused has its result, and is not
// left.
func (e *Engine) judgeCodes(ctx context.Context, all []assign.Disposal, left *[]int, c *disposals, results []assign.Result, by assign.Holder, asManager bool) error {
	type theirs struct {
		task int64
		live bool
	}
	held, rules := map[int64]theirs{}, map[int64]*assign.OutcomeRules{}
	ids := make([]int64, len(*left))
	for n, i := range *left {
		ids[n] = all[i].ID
	}
	rows, err := e.DB.Query(ctx, e.SQL(selectTheirTasks), ids)
	if err != nil {
		return fmt.Errorf("read work: %w", err)
	}
	var tasks []int64
	var id int64
	var w theirs
	var of assign.Holder
	_, err = pgx.ForEachRow(rows, []any{&id, &w.task, &of.User, &of.Instance, &w.live}, func() error {
		if asManager || of == by {
			held[id] = w
		}
		if !slices.Contains(tasks, w.task) {
			tasks = append(tasks, w.task)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read work: %w", err)
	}
	if rows, err = e.DB.Query(ctx, e.SQL(selectTheirRules), tasks); err != nil {
		return fmt.Errorf("read the tasks' codes: %w", err)
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		r, task := new(assign.OutcomeRules), int64(0)
		err := row.Scan(append([]any{&task}, records.IntoOutcomes(r)...)...)
		rules[task] = r
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("read the tasks' codes: %w", err)
	}
	var rest []int
	for _, i := range *left {
		d := all[i]
		w := held[d.ID]
		r := rules[w.task]
		if !w.live || r == nil { // judged by what became of it
			rest = append(rest, i)
			continue
		}
		said, err := r.Apply(d.Disposition)
		if err != nil {
			results[i] = refused(d.ID, err)
			continue
		}
		rest = append(rest, i)
		c.add(assign.Disposal{ID: d.ID, Disposition: said}, judgedBy(said, r.Version))
	}
	*left = rest
	return nil
}

// closeMany closes what is held, and returns what it has closed.
func (e *Engine) closeMany(ctx context.Context, c *disposals, by assign.Holder, asManager bool) (closed map[int64]bool, err error) {
	if len(c.ids) == 0 {
		return nil, nil
	}
	type ending struct {
		task  int64
		state assign.WorkState
	}
	var ends map[ending]int
	var freed, to []int64
	statement := closeMany
	if asManager {
		statement = closeAnybodys
	}
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		rows, err := tx.Query(ctx, e.SQL(statement), c.ids, c.states, c.afters, c.toOthers, c.notes, c.errors, asManager, by.User, c.codes, c.results, c.versions, by.Instance)
		if err != nil {
			return nil, err
		}
		closed, ends, freed = map[int64]bool{}, map[ending]int{}, nil
		byTask := map[int64][]int64{}
		var id int64
		var end ending
		var quiet bool
		var on *onward
		var from []int64
		to = nil
		_, err = pgx.ForEachRow(rows, []any{&id, &end.task, &end.state, &quiet, &on}, func() error {
			if on != nil && on.Draws(id) {
				from, to = append(from, id), append(to, on.To)
			}
			closed[id], byTask[end.task] = true, append(byTask[end.task], id)
			ends[end]++
			if !quiet && !slices.Contains(freed, end.task) {
				freed = append(freed, end.task)
			}
			return nil
		})
		if err == nil && len(from) > 0 {
			to, err = e.pushOnward(ctx, tx, from, to)
		}
		return changesOf(byTask), err
	})
	if err != nil {
		return nil, fmt.Errorf("close work: %w", err)
	}
	e.pushedOnward(to)
	if len(freed) > 0 { // before any further read: the caller may be gone by now
		e.WakeFreed(ctx, freed...)
	}
	for end, n := range ends {
		e.CountClosed(end.task, end.state, n)
	}
	return closed, nil
}

// disposals are dispositions as the database takes them.
type disposals struct {
	ids           []int64
	states        []string
	afters        []*int64 // microseconds
	toOthers      []bool
	notes, errors []*string

	codes, results []*string
	versions       []*int // see judgedBy
}

func (c *disposals) add(d assign.Disposal, version *int) {
	var after *int64
	if d.After != nil {
		after = new(time.Duration(*d.After).Microseconds())
	}
	c.ids = append(c.ids, d.ID)
	c.states = append(c.states, string(d.State()))
	c.afters = append(c.afters, after)
	c.toOthers = append(c.toOthers, d.ToOthers())
	c.notes = append(c.notes, d.Note)
	c.errors = append(c.errors, d.Error)
	c.codes = append(c.codes, codeOf(d.Disposition))
	c.results = append(c.results, resultOf(d.Disposition))
	c.versions = append(c.versions, version)
}

// refused returns the result for work that is refused with err.
func refused(id int64, err error) assign.Result {
	var r *assign.Refusal
	if !errors.As(err, &r) {
		r = assign.Refuse(assign.Internal, "%v", err)
	}
	return assign.Refused(id, r)
}

// changesOf returns the changes of work by task.
func changesOf(byTask map[int64][]int64) (changes []notify.Change) {
	for task, ids := range byTask {
		changes = append(changes, notify.Change{Task: task, Work: ids})
	}
	return changes
}

// works is work for many, by id. Its details are left out as carried says.
func (e *Engine) works(ctx context.Context, ids []int64, carried *assign.Carried) (map[int64]*records.Disposed, error) {
	rows, err := e.DB.Query(ctx, e.SQL(selectMany), ids)
	if err != nil {
		return nil, fmt.Errorf("read work: %w", err)
	}
	found := make(map[int64]*records.Disposed, len(ids))
	scan := records.NewDisposedScan(carried)
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		f, err := scan(row)
		found[f.Work.ID] = &f
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read work: %w", err)
	}
	return found, nil
}
