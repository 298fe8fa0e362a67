package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/records"
	"getwork/notify"
)

const cancelRequest = `
update getwork.work_requested
set state = 'cancelled', requested = 0, reason = null, completed_at = clock_timestamp()
where id = $1 and state = 'pending'`

// Cancel ends a pending request without work; repeating it changes nothing. A round that has read the request locks its row
// until the commit, so exactly one of the two ends it. [assign.NotPending]: it has ended otherwise. What a manager ends for somebody
// else is audited.
func (e *Engine) Cancel(ctx context.Context, id int64, by assign.Holder, asManager bool) (assign.Request, error) {
	r, err := e.Records.Request(ctx, id, by, asManager)
	if err != nil {
		return assign.Request{}, err
	}
	var cancelled bool
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		tag, err := tx.Exec(ctx, e.SQL(cancelRequest), id)
		if cancelled = tag.RowsAffected() > 0; !cancelled {
			return nil, err
		}
		changes := []notify.Change{{Task: r.TaskID, Requests: []int64{id}}}
		if r.User == by.User {
			return changes, nil
		}
		detail := map[string]any{"task": r.Task, "user": r.User, "request": id}
		return changes, e.Audit.Write(ctx, tx, audit.Act{Act: "request.cancel", Object: r.User, Detail: detail})
	})
	if err != nil {
		return assign.Request{}, fmt.Errorf("cancel request: %w", err)
	}
	if cancelled {
		e.countEnd(r.TaskID, assign.Cancelled, 1)
		e.Poke(r.TaskID)
	}
	r, err = e.Records.Request(ctx, id, by, asManager)
	if err == nil && r.State != assign.Cancelled {
		err = assign.Refuse(assign.NotPending, "request %d has ended as %s; what it got is in your pipeline", id, r.State)
	}
	return r, err
}

// endOver ends requests whose time to linger is over, without a run. Either a round has read them before and found nothing,
// or nothing can be handed out now. A request that no round has read yet is served like any other. One that a round has locked is
// left to that round.
const endOver = `
with over as (
  select r.id, s.paused, ` + records.Failing + ` as failing, s.last_error,
    (select case when u.given > u.passed_over then 'all_held' else 'no_match' end
     from getwork.run u where u.task_id = r.task_id and u.state = 'finished' order by u.id desc limit 1) as found
  from getwork.work_requested r left join getwork.task_state s using (task_id)
  where r.state = 'pending' and r.linger_until <= clock_timestamp()
    and (r.look_after is not null or s.paused or ` + records.Failing + `)
  order by r.id
  limit 1000
  for update of r skip locked
)
update getwork.work_requested r
set state = case when o.failing and not o.paused then 'failed' else 'none' end,
    requested = 0, completed_at = clock_timestamp(),
    reason = case when o.paused then 'paused' when not coalesce(o.failing, false) then coalesce(r.reason, o.found, 'no_match') end,
    error = case when o.failing and not o.paused then o.last_error end
from over o
where r.id = o.id and r.state = 'pending'
returning r.task_id, r.id, r.state`

// endLingering ends requests that have lingered for long enough, on whichever node comes first.
func (e *Engine) endLingering(ctx context.Context) error {
	type end struct {
		task int64
		as   assign.State
	}
	ends := map[end]int{}
	err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		clear(ends)
		var ended []notify.Change
		rows, err := tx.Query(ctx, e.SQL(endOver))
		if err != nil {
			return nil, err
		}
		_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
			var task, id int64
			var as assign.State
			err := row.Scan(&task, &id, &as)
			ended = append(ended, notify.Change{Task: task, Requests: []int64{id}})
			ends[end{task, as}]++
			return struct{}{}, err
		})
		return ended, err
	})
	if err != nil {
		return fmt.Errorf("end lingering requests: %w", err)
	}
	for end, n := range ends {
		e.countEnd(end.task, end.as, n)
	}
	return nil
}

// overlap is how long after an end a click that does not see it may still commit: a batch takes no longer than recordWithin,
// and then its connection is given up.
const overlap = 2 * recordWithin

const cancelOver = `update getwork.work_requested r
set state = 'cancelled', requested = 0, reason = null, completed_at = clock_timestamp()
from over o
where r.id = o.id and r.state = 'pending'
returning r.task_id, r.id`

// requestsOf executes a statement that returns requests by task, and returns them as changes.
func requestsOf(ctx context.Context, tx pgx.Tx, statement string, args ...any) (changes []notify.Change, err error) {
	rows, err := tx.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	var task, id int64
	_, err = pgx.ForEachRow(rows, []any{&task, &id}, func() error {
		changes = append(changes, notify.Change{Task: task, Requests: []int64{id}})
		return nil
	})
	return changes, err
}

// What a user ($1) waits for, of one task ($2) or, if that is 0, of all.
const (
	waitingOf = `from getwork.work_requested r where r.state = 'pending' and r.user_name = $1 and ($2 = 0 or r.task_id = $2)`

	countWaiting = `select count(*) ` + waitingOf

	cancelWaiting = `
with over as materialized (select r.id ` + waitingOf + ` order by r.id for update)
` + cancelOver
)

// CancelWaiting cancels what a user waits for, of one task or, if task is 0, of all. It belongs in the transaction of a release, before
// any work is let go of.
func (e *Engine) CancelWaiting(ctx context.Context, tx pgx.Tx, user string, task int64) ([]notify.Change, error) {
	return requestsOf(ctx, tx, e.SQL(cancelWaiting), user, task)
}

// CountWaiting counts what CancelWaiting would cancel.
func (e *Engine) CountWaiting(ctx context.Context, tx pgx.Tx, user string, task int64) (n int, err error) {
	err = tx.QueryRow(ctx, e.SQL(countWaiting), user, task).Scan(&n)
	return n, err
}

const cancelCredentials = `
with over as (
  select r.id
  from getwork.work_requested r
  where r.state = 'pending' and r.credential is not null and r.credential = any($1::text[])
  order by r.id
  for update
)
` + cancelOver

// EndCredentials cancels what waits under these credentials. It belongs in the transaction that ends them, after the rows of
// sessions and tokens are written, and the caller announces the changes. If a round has read such a request, EndCredentials
// waits for it: that round began before the end, and serves it.
func (e *Engine) EndCredentials(ctx context.Context, tx pgx.Tx, credentials []string) ([]notify.Change, error) {
	changes, err := requestsOf(ctx, tx, e.SQL(cancelCredentials), credentials)
	if err != nil {
		return nil, fmt.Errorf("cancel requests of ended log-ins: %w", err)
	}
	e.CountCancelled(changes) // a figure for graphs, so it may count an end that does not commit
	return changes, nil
}

// CancelEnded cancels, in all tasks, what waits under a credential that has ended or is past its time, or for a user who is
// blocked, and gives the rest the groups that their users have now. Every node calls it when something has ended. A click may commit
// beside the end and be seen a little later, so the rescuer repeats it for as long as that may be.
func (e *Engine) CancelEnded(ctx context.Context) error {
	now := time.Now()
	e.endedAt.Store(&now)
	return e.cancelEnded(ctx)
}

const (
	// What the first part found may have changed until its row is locked: its holder may have asked again, with another
	// credential. A user who is blocked may also wait without any credential, since before there was log-in.
	cancelEnded = `
with ended as materialized (
  select e as credential
  from (
    select array_agg(distinct r.credential) as shown
    from getwork.work_requested r
    where r.state = 'pending' and r.credential is not null) w
  cross join lateral getwork.ended_among(w.shown) e
), due as materialized (
  select r.id, r.credential, r.valid_until
  from ended e join getwork.work_requested r on r.credential = e.credential
  where r.state = 'pending' and r.credential is not null
  union
  select r.id, r.credential, r.valid_until
  from getwork.work_requested r
  where r.state = 'pending' and r.valid_until <= clock_timestamp()
  union
  select r.id, r.credential, r.valid_until
  from getwork.principal p join getwork.work_requested r on r.user_name = p.name
  where p.blocked_at is not null and r.state = 'pending'
), over as (
  select r.id
  from due d join getwork.work_requested r on r.id = d.id and r.credential is not distinct from d.credential
    and r.valid_until is not distinct from d.valid_until
  where r.state = 'pending'
  order by r.id
  for update of r
)
` + cancelOver

	// A change of groups does not see a click that commits beside it, either. A manager needs no groups, and a JWT says itself
	// which it has.
	regroupChanged = `
with now as materialized (
  select c.credential, g.groups
  from (select distinct r.credential from getwork.work_requested r where r.state = 'pending' and r.credential is not null) c
  cross join lateral (
    select case when s.role <> 'manager' then s.groups end as groups
    from getwork.session s
    where left(c.credential, 2) = 's:' and s.public_id = substr(c.credential, 3)
    union all
    select case when t.role <> 'manager' or coalesce(s.role, p.role) <> 'manager' then coalesce(s.groups, p.groups) end
    from getwork.token t join getwork.principal p on p.id = t.principal left join getwork.session s on s.id = t.parent
    where left(c.credential, 2) = 't:' and t.id = substr(c.credential, 3)
    union all
    select case when p.role <> 'manager' then p.groups end
    from getwork.principal p
    where c.credential like 'p:%' and p.id = split_part(substr(c.credential, 3), '.', 1)::bigint) g
), mine as (
  select r.id, n.credential, n.groups
  from now n join getwork.work_requested r on r.credential = n.credential
  where r.state = 'pending' and r.groups is distinct from n.groups
  order by r.id
  for update of r
)
update getwork.work_requested r
set groups = m.groups
from mine m
where r.id = m.id and r.state = 'pending' and r.credential = m.credential
returning r.task_id, r.id`
)

func (e *Engine) cancelEnded(ctx context.Context) error {
	cancelled, err := changeRequests(ctx, e, cancelEnded)
	if err != nil {
		return fmt.Errorf("cancel requests of ended log-ins: %w", err)
	}
	e.CountCancelled(cancelled)
	regrouped, err := changeRequests(ctx, e, regroupChanged) // in a transaction of its own: each locks requests by their ids
	if err != nil {
		return fmt.Errorf("change the groups of waiting requests: %w", err)
	}
	for _, c := range slices.Concat(cancelled, regrouped) {
		e.Poke(c.Task)
	}
	return nil
}

// CountCancelled counts requests that were cancelled, one a change.
func (c *Counts) CountCancelled(cancelled []notify.Change) {
	for _, r := range cancelled {
		c.countEnd(r.Task, assign.Cancelled, 1)
	}
}

// changeRequests executes a statement that changes requests, and announces them.
func changeRequests(ctx context.Context, e *Engine, statement string) (changes []notify.Change, err error) {
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
		changes, err = requestsOf(ctx, tx, e.SQL(statement))
		return changes, err
	})
	return changes, err
}
