package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/notify"
)

// A lease is the time until which work must be finished or extended. After that its holder counts as gone, and the item
// returns with its age. There is no leader: every node sweeps. Rows are locked with skip locked, each write repeats what it
// relies on, and the database's clock alone decides. A node that is down or frozen expires nothing twice, and other nodes
// sweep what it would have swept.
//
// What is due is found by one index, of the time when something happens next to a lease: the warning, or else its end. Both
// statements repeat the index's expression and condition.
var (
	// An expiry counts as an attempt: an item that kills its agents must not come back for ever. A program whose lease ran
	// out counts as dead, so its pending request is ended, too. Otherwise it would get the item again, and hold it for
	// another lease. A request that a round has locked is left to that round.
	expireWork = `
with due as materialized (
  select id
  from getwork.work
  where state = 'held' and lease_expires_at is not null
    and least(warn_at, lease_expires_at) <= (select clock_timestamp()) and lease_expires_at <= (select clock_timestamp())
  order by least(warn_at, lease_expires_at)
  limit $1
  for update skip locked
), ended as (
  update getwork.work w
  set state = case when w.attempt >= v.max_attempts then 'never' else 'expired' end,
      exhausted = coalesce(w.attempt >= v.max_attempts, false),
      closed_at = clock_timestamp(), closed_xid = pg_current_xact_id(), code = '` + assign.CodeExpired + `'
  from due, getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  where w.id = due.id and s.task_id = w.task_id and w.state = 'held' and w.lease_expires_at <= clock_timestamp()
  returning w.id, w.task_id, w.item, w.state, w.available_at, w.user_name, w.instance
), ` + SettleMany + `, silent as materialized (
  select r.id
  from getwork.work_requested r
  join ended e on e.task_id = r.task_id and e.user_name = r.user_name and e.instance = r.instance
  where r.state = 'pending' and r.instance <> ''
  for update of r skip locked
), cancelled as (
  update getwork.work_requested r
  set state = 'cancelled', requested = 0, reason = null, completed_at = clock_timestamp()
  where r.id = any (select s.id from silent s) and r.state = 'pending'
  returning r.task_id, r.id
)
select task_id, id, true from ended
union all
select task_id, id, false from cancelled`

	// The holder is warned once that the lease is about to run out, and again after each extension.
	warnHolders = `
with due as materialized (
  select id
  from getwork.work
  where state = 'held' and lease_expires_at is not null
    and least(warn_at, lease_expires_at) <= (select clock_timestamp()) and warn_at <= (select clock_timestamp())
  order by least(warn_at, lease_expires_at)
  limit $1
  for update skip locked
)
update getwork.work w
set warn_at = null
from due
where w.id = due.id and w.state = 'held'
returning w.task_id, w.id, true`

	nextLease = `
select coalesce(extract(epoch from (
  select min(least(warn_at, lease_expires_at)) from getwork.work where state = 'held' and lease_expires_at is not null)
  - clock_timestamp()), 1000000)::float8`
)

const (
	sweepBatch = 500                   // bounds one transaction of the sweep
	sweepPause = 50 * time.Millisecond // the least time between two sweeps, however many leases are given or due
)

// wakeSweep makes sweepLeases check whether it is due earlier now.
func (e *Engine) wakeSweep() {
	select {
	case e.leases <- struct{}{}:
	default:
	}
}

// oversleeps reports whether the holder of a lease that is given now is to be warned before sweepLeases wakes by itself. Other leases
// don't wake it: while work is handed out, each node would ask for the next lease up to twenty times a second, nearly always for nothing.
func (e *Engine) oversleeps(lease assign.Duration) bool {
	return time.Duration(lease)*4/5 < e.LookEvery*3/2
}

// sweepLeases sleeps until the next lease runs out or the next holder is to be warned. Every node knows of a new lease within three seconds,
// in case the node that gave it is gone by then; that node knows of a brief one at once. It pauses after each sweep. Otherwise a row
// that is due but locked would make it spin, and so would many short leases.
func (e *Engine) sweepLeases(ctx context.Context) error {
	for {
		next := e.LookEvery/2 + rand.N(e.LookEvery)
		if until, err := e.sweep(ctx); err == nil {
			next = min(next, until)
		} else if ctx.Err() == nil && !pg.Away(err) { // other statements report a database that is away
			e.Log.Warn("sweep leases", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(sweepPause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next - sweepPause):
		case <-e.leases:
		}
	}
}

// sweep ends leases that have run out, warns holders whose lease is about to, and returns the time until the next one.
func (e *Engine) sweep(ctx context.Context) (next time.Duration, err error) {
	if next, err = e.untilLease(ctx); err != nil || next > 0 {
		return next, err
	}
	for _, statement := range []string{expireWork, warnHolders} {
		for n := sweepBatch; n == sweepBatch; {
			var found []swept
			if found, err = e.sweepOnce(ctx, statement); err != nil {
				return 0, fmt.Errorf("sweep leases: %w", err)
			}
			n = 0
			tasks := map[int64]bool{}
			for _, f := range found {
				if !f.work {
					e.countEnd(f.task, assign.Cancelled, 1)
					continue
				}
				tasks[f.task] = true
				if statement == expireWork {
					e.CountClosed(f.task, assign.WorkExpired, 1)
				}
				n++
			}
			if statement == expireWork && n > 0 {
				e.Expired.n.Add(int64(n))
				e.WakeFreed(ctx, slices.Sorted(maps.Keys(tasks))...)
			}
		}
	}
	return e.untilLease(ctx)
}

// untilLease returns the time until a lease runs out or a holder is to be warned.
func (e *Engine) untilLease(ctx context.Context) (time.Duration, error) {
	var seconds float64
	if err := e.DB.QueryRow(ctx, e.SQL(nextLease)).Scan(&seconds); err != nil {
		return 0, fmt.Errorf("read the next lease: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// swept is work or a request that a sweep changed.
type swept struct {
	task, id int64
	work     bool
}

// sweepOnce sweeps one batch.
func (e *Engine) sweepOnce(ctx context.Context, statement string) (found []swept, err error) {
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) (changes []notify.Change, err error) {
		rows, err := tx.Query(ctx, e.SQL(statement), sweepBatch)
		if err != nil {
			return nil, err
		}
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s swept, err error) {
			err = row.Scan(&s.task, &s.id, &s.work)
			return s, err
		})
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if f.work {
				changes = append(changes, notify.Change{Task: f.task, Work: []int64{f.id}})
			} else {
				changes = append(changes, notify.Change{Task: f.task, Requests: []int64{f.id}})
			}
		}
		return changes, nil
	})
	return found, err
}

// stillLeased is what an extension relies on: the work w is still held, and its lease is not over.
const stillLeased = `w.state = 'held' and w.lease_expires_at > clock_timestamp()
`

// extended begins a lease anew: that of work that is put aside begins when it is due.
const extended = `
set lease_expires_at = greatest(clock_timestamp(), later_until) + lease, warn_at = greatest(clock_timestamp(), later_until) + lease * 0.8
`

// extendWork repeats what it relies on: the work is still held by its holder, and its lease is not over.
const extendWork = `
update getwork.work w` + extended + `
where w.id = $1 and w.user_name = $2 and w.instance = $3 and ` + stillLeased + `
returning w.task_id`

// Extend begins the lease of held work anew. Work without a lease is returned as it is. [assign.LeaseLost]: the holder no
// longer holds it, and somebody else may by now. [assign.NotFound]: it was never theirs.
func (e *Engine) Extend(ctx context.Context, id int64, by assign.Holder) (assign.Work, error) {
	var extended bool
	err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		var task int64
		err := tx.QueryRow(ctx, e.SQL(extendWork), id, by.User, by.Instance).Scan(&task)
		if extended = err == nil; errors.Is(err, pgx.ErrNoRows) {
			return nil, nil
		}
		return []notify.Change{{Task: task, Work: []int64{id}}}, err
	})
	if err != nil {
		return assign.Work{}, fmt.Errorf("extend work: %w", err)
	}
	found, _, err := e.Records.Disposed(ctx, id)
	if err == nil {
		err = judgeExtended(&found.Work, by, extended)
	}
	if err != nil {
		return assign.Work{}, err
	}
	return found.Work, nil
}

// judgeExtended returns nil if the holder holds the work, and its lease was extended or it has none.
func judgeExtended(w *assign.Work, by assign.Holder, extended bool) error {
	switch {
	case w.Holder() != by:
		return assign.NoWork(w.ID)
	case extended && w.State == "held": // otherwise it was closed meanwhile
		return nil
	case w.State == "held" && w.LeaseExpiresAt == nil:
		return nil
	}
	return leaseLostErr(*w)
}

// extendMany is extendWork for many rows, which are locked in the order of ids. "case" is as in closeMany.
const extendMany = `
with mine as materialized (
  select w.id
  from getwork.work w
  where w.id = any($1::bigint[]) and w.user_name = $2 and w.instance = $3 and ` + stillLeased + `
  order by w.id
  for update
)
update getwork.work w` + extended + `
from mine
where w.id = mine.id and case when ` + stillLeased + ` then true end
returning w.task_id, w.id`

// ExtendMany begins the leases of much work anew in one transaction, and judges each as [Engine.Extend] would: the results have the
// order of ids. If any work is named twice, or more than [assign.MaxMany], nothing is done.
func (e *Engine) ExtendMany(ctx context.Context, ids []int64, by assign.Holder) ([]assign.Result, error) {
	if err := assign.CheckMany(ids, "ids", ""); err != nil {
		return nil, err
	}
	results := make([]assign.Result, len(ids))
	if len(ids) == 0 {
		return results, nil
	}
	var extended map[int64]bool
	err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		rows, err := tx.Query(ctx, e.SQL(extendMany), ids, by.User, by.Instance)
		if err != nil {
			return nil, err
		}
		extended = map[int64]bool{}
		byTask := map[int64][]int64{}
		var task, id int64
		_, err = pgx.ForEachRow(rows, []any{&task, &id}, func() error {
			extended[id], byTask[task] = true, append(byTask[task], id)
			return nil
		})
		return changesOf(byTask), err
	})
	if err != nil {
		return nil, fmt.Errorf("extend work: %w", err)
	}
	found, err := e.works(ctx, ids, new(assign.Carried))
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		f := found[id]
		if f == nil {
			results[i] = refused(id, assign.NoWork(id))
			continue
		}
		if err := judgeExtended(&f.Work, by, extended[id]); err != nil {
			results[i] = refused(id, err)
			continue
		}
		results[i] = assign.Result{ID: id, Status: 200, Work: &f.Work}
	}
	return results, nil
}

// laterWork repeats what it relies on, as extendWork does: an expiry beside it has the row first, and it changes nothing, or finds the
// lease prolonged.
const laterWork = `
update getwork.work w
set later_until = $4::timestamptz,
    lease_expires_at = greatest(clock_timestamp(), $4::timestamptz) + lease, warn_at = greatest(clock_timestamp(), $4::timestamptz) + lease * 0.8
where w.id = $1 and w.user_name = $2 and w.instance = $3
  and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
  and ($4::timestamptz is null or $4::timestamptz > clock_timestamp() and $4::timestamptz <= clock_timestamp() + interval '72 hours')
returning w.task_id`

// Later puts held work aside for its holder until a time, or takes it up again: nil. It stays held, and its lease begins anew then, so that
// nobody else gets the item meanwhile. The refusals are those of [Engine.Extend]; a program's instance is refused with [assign.Forbidden].
func (e *Engine) Later(ctx context.Context, id int64, until *time.Time, by assign.Holder) (assign.Work, error) {
	if by.Instance != "" {
		return assign.Work{}, assign.Refuse(assign.Forbidden, "a program does not put work aside; return it with after, and it comes back by itself")
	}
	var put bool
	err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		var task int64
		err := tx.QueryRow(ctx, e.SQL(laterWork), id, by.User, by.Instance, until).Scan(&task)
		if put = err == nil; errors.Is(err, pgx.ErrNoRows) {
			return nil, nil
		}
		return []notify.Change{{Task: task, Work: []int64{id}}}, err
	})
	if err != nil {
		return assign.Work{}, fmt.Errorf("put work aside: %w", err)
	}
	found, _, err := e.Records.Disposed(ctx, id)
	switch w := &found.Work; {
	case err != nil:
	case w.Holder() != by:
		err = assign.NoWork(id)
	case put && w.State == assign.WorkHeld: // otherwise it was closed meanwhile
		return *w, nil
	case found.Live:
		err = assign.RefuseField("until", "until is a time within the next 72 hours, or null to take the work up again")
	default:
		err = leaseLostErr(*w)
	}
	return assign.Work{}, err
}

// leaseLostErr says to a holder why the work is no longer theirs.
func leaseLostErr(w assign.Work) error {
	switch w.State {
	case "never":
		return assign.Refuse(assign.LeaseLost, "the lease of work %d ran out, and with it the last attempt at %s; a manager can redrive it", w.ID, w.Item)
	case "held", "expired":
		return assign.Refuse(assign.LeaseLost, "the lease of work %d ran out, and %s went back; ask for work again", w.ID, w.Item)
	case "reassigned":
		return assign.Refuse(assign.LeaseLost, "work %d was given to somebody else; ask for work again", w.ID)
	}
	return assign.Refuse(assign.LeaseLost, "work %d was closed as %s; it is not held any more", w.ID, w.State)
}
