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
// is read a little after the condition on the lease, and is limited to the lease's end.
var closeWork = `
with closed as (
  update getwork.work w
  set state = case when l.exhausted then 'never' else $2 end, exhausted = l.exhausted,
      ` + closedAt + `, closed_by = $3, closed_xid = pg_current_xact_id(),
      after = $4 * interval '1 microsecond', to_others = $5, note = $6, error = $7,
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
  returning w.id, w.task_id, w.item, w.state, w.available_at, v.done_by, array[w.user_name] as users,
    v.query is null and w.exclusive is null and w.state = 'completed' as quiet, ` + onwardOf + ` as onward
), ` + settleCompleted + `
select c.quiet, case when ` + finished + ` then c.onward end from closed c`

// Dispose closes held work for its holder, or for a manager. Repeating it changes nothing. [assign.LeaseLost]: the lease ran
// out before. [assign.AlreadyClosed]: it was closed in another way. [assign.NotFound]: it was never theirs, and asManager is false.
func (e *Engine) Dispose(ctx context.Context, id int64, d assign.Disposition, by assign.Holder, asManager bool) (assign.Work, error) {
	if err := d.Check(); err != nil {
		return assign.Work{}, err
	}
	w, _, err := e.Records.Disposed(ctx, id, d)
	if err != nil {
		return assign.Work{}, err
	}
	if !asManager && w.Holder() != by {
		return assign.Work{}, assign.NoWork(id)
	}
	var quiet bool // nothing became free: the item is done
	var on *onward
	var to []int64
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		err := tx.QueryRow(ctx, e.SQL(closeWork), id, d.State(), by.User, d.After, d.ToOthers(), d.Note, d.Error).Scan(&quiet, &on)
		if err == nil && on != nil && on.Draws(id) {
			to, err = e.pushOnward(ctx, tx, []int64{id}, []int64{on.To})
		}
		return []notify.Change{{Task: w.TaskID, Work: []int64{id}}}, err
	})
	closed := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return assign.Work{}, fmt.Errorf("close work: %w", err)
	}
	if closed && !quiet { // before any further read: the caller may be gone by now
		e.WakeFreed(ctx, w.TaskID)
	}
	e.pushedOnward(to)
	w, same, err := e.Records.Disposed(ctx, id, d)
	if closed && err == nil {
		e.CountClosed(w.TaskID, w.State, 1)
	}
	if err == nil {
		err = judge(&w, closed, same)
	}
	if err != nil {
		return assign.Work{}, err
	}
	return w, nil
}

// judge returns nil if the disposition closed the work, or it had been closed in just that way.
func judge(w *assign.Work, closed, same bool) error {
	switch {
	case closed:
		return nil
	case w.State == "held", w.RanOut():
		return leaseLostErr(*w)
	case same:
		return nil
	case w.Exhausted:
		return assign.Refuse(assign.AlreadyClosed, "work %d has failed for the last time: its attempts are used up", w.ID)
	}
	return assign.Refuse(assign.AlreadyClosed, "work %d was closed as %s; it can't be changed any more", w.ID, w.State)
}

const (
	// given are the columns of dispositions, one row each.
	given = `unnest((select $1::bigint[]), $2::text[], $3::bigint[], $4::boolean[], $5::text[], $6::text[]) as d (id, state, after, to_others, note, error)`

	// closeMany is closeWork for many rows, which are locked in the order of ids: two calls that name the same work wait for each other
	// in one direction only.
	//
	// Each row is looked up by its id: "offset 0" and "case" keep PostgreSQL from the indexes of what is held. It expects next to nothing
	// there, and would compare each row of the call with everything that anybody holds. The sub-query is as in selectTickets.
	formatCloseMany = `
with mine as materialized (
  select w.id, w.task_id, w.attempt, d.state, d.after * interval '1 microsecond' as after, d.to_others, d.note, d.error
  from (select * from ` + given + ` order by d.id) d cross join lateral (
    select w.id, w.task_id, w.attempt
    from getwork.work w
    where w.id = d.id and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
      and ($7 or w.user_name = $8 and w.instance = $9)
    offset 0
    for update) w
), ended as (
  update getwork.work w
  set state = case when l.exhausted then 'never' else d.state end, exhausted = l.exhausted,
      ` + closedAt + `, closed_by = $8, closed_xid = pg_current_xact_id(),
      after = d.after, to_others = d.to_others, note = d.note, error = d.error,
      available_at = case
        when d.state = 'returned' then clock_timestamp() + d.after
        when d.state = 'failed' and not l.exhausted then
          clock_timestamp() + ` + backOffOf + ` * (1 + random() / 5)
      end
  from mine d
  join getwork.task_state s on s.task_id = d.task_id
  join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  cross join lateral (select coalesce(d.state = 'failed' and d.attempt >= v.max_attempts, false) as exhausted) l
  where w.id = d.id and case when w.state = 'held' then w.lease_expires_at is null or w.lease_expires_at > clock_timestamp() end
  returning w.id, w.task_id, w.item, w.state, w.available_at, v.done_by, w.user_name,
    v.query is null and w.exclusive is null and w.state = 'completed' as quiet, ` + onwardOf + ` as onward
), %s
select c.id, c.task_id, c.state, c.quiet, case when c.onward is not null and ` + finishedAmong + ` then c.onward end from ended c`

	// Each row is looked up. The planner expects the rows of a call to be cheaper in a read of the whole table, while that is small.
	selectMany = `
select ` + records.WorkColumns + `, w.after is not distinct from d.after * interval '1 microsecond' and w.to_others = d.to_others
from unnest($1::bigint[], $2::bigint[], $3::boolean[]) as d (id, after, to_others)
cross join lateral (select o.* from getwork.work o where o.id = d.id offset 0) w
join getwork.task_state s using (task_id)`

	// onwardOf is where a completion of w goes on to, if it is drawn. An item of an inbox goes with the completion that finishes it.
	onwardOf = `case when w.state = 'completed' then v.on_complete || jsonb_build_object('inbox', v.query is null) end`

	// "case" makes it a hash: joined, each closed work would be compared with each item.
	finished      = `c.onward is not null and (not (c.onward->>'inbox')::boolean or (select s.done from settled s))`
	finishedAmong = `(not (c.onward->>'inbox')::boolean
    or c.id in (select f.id from closed f where case when (f.task_id, f.item) in (select s.task_id, s.item from settled s where s.done) then true end))`
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
	var c disposals
	for i, d := range all {
		if err := d.Check(); err != nil {
			results[i] = refused(d.ID, err)
			continue
		}
		c.add(d, i)
	}
	if len(c.ids) == 0 {
		return results, nil
	}
	type ending struct {
		task  int64
		state assign.WorkState
	}
	var closed map[int64]bool
	var ends map[ending]int
	var freed, to []int64
	statement := closeMany
	if asManager {
		statement = closeAnybodys
	}
	err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		rows, err := tx.Query(ctx, e.SQL(statement), c.ids, c.states, c.afters, c.toOthers, c.notes, c.errors, asManager, by.User, by.Instance)
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
	read := c
	if brief {
		read = disposals{}
		for _, i := range c.at {
			if id := all[i].ID; closed[id] {
				results[i] = assign.Result{ID: id, Status: 200}
			} else {
				read.add(all[i], i)
			}
		}
		if len(read.ids) == 0 {
			return results, nil
		}
	}
	found, err := e.works(ctx, read.ids, read.afters, read.toOthers)
	if err != nil {
		return nil, err
	}
	for _, i := range read.at {
		d := all[i]
		f := found[d.ID]
		if f == nil || !asManager && f.work.Holder() != by {
			results[i] = refused(d.ID, assign.NoWork(d.ID))
			continue
		}
		w := &f.work
		if err := judge(w, closed[d.ID], f.same && records.ClosedAs(w, d.Disposition)); err != nil {
			results[i] = refused(d.ID, err)
			continue
		}
		if results[i] = (assign.Result{ID: d.ID, Status: 200}); !brief {
			results[i].Work = w
		}
	}
	return results, nil
}

// disposals are dispositions as the database takes them.
type disposals struct {
	at            []int // their places in the call
	ids           []int64
	states        []string
	afters        []*int64 // microseconds
	toOthers      []bool
	notes, errors []*string
}

func (c *disposals) add(d assign.Disposal, at int) {
	var after *int64
	if d.After != nil {
		after = new(time.Duration(*d.After).Microseconds())
	}
	c.at = append(c.at, at)
	c.ids = append(c.ids, d.ID)
	c.states = append(c.states, string(d.State()))
	c.afters = append(c.afters, after)
	c.toOthers = append(c.toOthers, d.ToOthers())
	c.notes = append(c.notes, d.Note)
	c.errors = append(c.errors, d.Error)
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

// foundWork is work, and whether it was closed with that after and to.
type foundWork struct {
	work assign.Work
	same bool
}

// works is work for many, by id.
func (e *Engine) works(ctx context.Context, ids []int64, afters []*int64, toOthers []bool) (map[int64]*foundWork, error) {
	rows, err := e.DB.Query(ctx, e.SQL(selectMany), ids, afters, toOthers)
	if err != nil {
		return nil, fmt.Errorf("read work: %w", err)
	}
	found := make(map[int64]*foundWork, len(ids))
	var same bool
	scan := records.NewWorkScan(&same).Within(new(assign.Carried))
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		w, err := scan.Scan(row)
		found[w.ID] = &foundWork{w, same}
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read work: %w", err)
	}
	return found, nil
}
