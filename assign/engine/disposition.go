package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/records"
	"getwork/notify"
)

// backOffOf is the least time for which the item of work w waits after it failed.
const backOffOf = `least(v.backoff * 2 ^ least(w.attempt - 1, 20), interval '24 hours')`

// closeWork repeats what it relies on: the work is still held, and its lease is not over. If it returns no row, the work was
// lost meanwhile. After a failure the item waits for the task's backoff, twice as long after each further failure, at most a
// day, and up to a fifth longer at random, so that items that failed together do not come back together. The time of closing
// is read a little after the condition on the lease, and is limited to the lease's end.
const closeWork = `
with closed as (
  update getwork.work w
  set state = case when l.exhausted then 'never' else $2 end, exhausted = l.exhausted,
      closed_at = least(clock_timestamp(), w.lease_expires_at), closed_by = $3, closed_xid = pg_current_xact_id(),
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
  returning w.id, w.task_id, w.item, w.state, w.available_at,
    v.query is null and w.exclusive is null and w.state = 'completed' as quiet
), ` + settleItems + `
select quiet, array(select closed.id from closed join settled using (task_id, item) where shared) from closed`

// Dispose closes held work for its holder, or for a manager. Repeating it changes nothing. [assign.LeaseLost]: the lease ran
// out before. [assign.AlreadyClosed]: it was closed in another way. [assign.NotFound]: it was never theirs, and asManager is false.
func (e *Engine) Dispose(ctx context.Context, id int64, d assign.Disposition, by assign.Holder, asManager bool) (assign.Work, error) {
	if err := d.Check(); err != nil {
		return assign.Work{}, err
	}
	w, _, err := e.work(ctx, id, d)
	if err != nil {
		return assign.Work{}, err
	}
	if !asManager && w.Holder() != by {
		return assign.Work{}, noWork(id)
	}
	var quiet bool // nothing became free: the item is done
	err = e.transactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		var shared []int64
		err := tx.QueryRow(ctx, e.SQL(closeWork), id, d.State(), by.User, d.After, d.ToOthers(), d.Note, d.Error).Scan(&quiet, &shared)
		if err == nil {
			err = settleWhatIsShared(ctx, tx, e.SQL, shared)
		}
		return []notify.Change{{Task: w.TaskID, Work: []int64{id}}}, err
	})
	closed := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return assign.Work{}, fmt.Errorf("close work: %w", err)
	}
	if closed && !quiet { // before any further read: the caller may be gone by now
		e.wakeFreed(ctx, w.TaskID)
	}
	w, same, err := e.work(ctx, id, d)
	if closed && err == nil {
		e.countClosed(w.TaskID, w.State, 1)
	}
	switch {
	case err != nil:
		return assign.Work{}, err
	case closed:
		return w, nil
	case w.State == "held", w.RanOut():
		return assign.Work{}, leaseLostErr(w)
	case same:
		return w, nil
	}
	if w.Exhausted {
		return assign.Work{}, assign.Refuse(assign.AlreadyClosed, "work %d has failed for the last time: its attempts are used up", id)
	}
	return assign.Work{}, assign.Refuse(assign.AlreadyClosed, "work %d was closed as %s; it can't be changed any more", id, w.State)
}

const selectWork = `
select ` + records.WorkColumns + `, w.after is not distinct from $2 * interval '1 microsecond' and w.to_others = $3
from getwork.work w join getwork.task_state s using (task_id)
where w.id = $1`

// work reads one row, and whether it was closed in just that way.
func (e *Engine) work(ctx context.Context, id int64, d assign.Disposition) (w assign.Work, same bool, err error) {
	rows, err := e.api.Query(ctx, e.SQL(selectWork), id, d.After, d.ToOthers())
	if err != nil {
		return assign.Work{}, false, fmt.Errorf("read work: %w", err)
	}
	w, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (assign.Work, error) { return records.ScanWork(row, &same) })
	if errors.Is(err, pgx.ErrNoRows) {
		return assign.Work{}, false, noWork(id)
	}
	if err != nil {
		return assign.Work{}, false, fmt.Errorf("read work: %w", err)
	}
	state := d.State()
	if d.Outcome == "fail" && w.Exhausted {
		state = "never"
	}
	return w, same && w.State == state && w.Exhausted == (state == "never" && d.Outcome == "fail"), nil
}

func noWork(id int64) error {
	return assign.Refuse(assign.NotFound, "no work %d of yours; GET /api/v1/pipeline lists what you hold", id)
}
