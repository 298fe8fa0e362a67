package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/ranking"
	"getwork/assign/records"
	"getwork/notify"
)

const (
	// Locked in the order of ids, so that the set stays as it was counted. If two managers release the same work, one waits for the
	// other. Work whose lease has run out is the sweep's: released, it would count as returned instead of expired, and its next
	// attempt as the first.
	selectReleased = `
select w.task_id, w.id
from getwork.work w
where w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
  and ($1 = '' or w.user_name = $1) and ($2 = 0 or w.task_id = $2)
order by w.id
for update`

	tokenOf = `select encode(sha256(convert_to(coalesce(string_agg(id::text, ',' order by id), ''), 'UTF8')), 'hex') from unnest($1::bigint[]) as w (id)`

	releaseWork = `
with closed as (
  update getwork.work w
  set state = 'returned', after = interval '0', available_at = clock_timestamp(),
      closed_at = clock_timestamp(), closed_by = $2, closed_xid = pg_current_xact_id()
  where w.id = any($1::bigint[]) and w.state = 'held'
  returning w.id, w.task_id, w.item, w.state, w.available_at
), ` + settleItems + `
select count(*), array(select closed.id from closed join settled using (task_id, item) where shared) from closed`
)

// Release returns the held work that it names: all of it or, if the set is not the token's any more, none
// ([assign.ChangedSet]). A dry run closes nothing, and returns the token.
func (e *Engine) Release(ctx context.Context, what assign.Release, by string) (assign.Released, error) {
	if what.User == "" && what.Task == "" {
		return assign.Released{}, assign.RefuseField("user", "name the user or the task whose work to release, or both")
	}
	if !what.DryRun && what.Token == "" {
		return assign.Released{}, assign.RefuseField("token", `a release names the token of a dry run: send "dry_run": true first, and then its token`)
	}
	if what.User != "" {
		if err := assign.CheckUser(what.User); err != nil {
			return assign.Released{}, err
		}
	}
	var task int64
	if what.Task != "" {
		var err error
		if task, _, err = e.Records.Find(ctx, what.Task, assign.Who{Anything: true}); err != nil {
			return assign.Released{}, err
		}
	}
	var done assign.Released
	var byTask map[int64][]int64
	err := e.transactAnnouncing(ctx, func(tx pgx.Tx) (changes []notify.Change, err error) {
		done, byTask, err = e.release(ctx, tx, what, task, by)
		for task, ids := range byTask {
			changes = append(changes, notify.Change{Task: task, Work: ids})
		}
		if err != nil || what.DryRun {
			return changes, err
		}
		detail := map[string]any{"user": what.User, "task": what.Task, "count": done.Count}
		return changes, auditor{e}.write(ctx, tx, audit.Act{Act: "work.release", Object: cmp.Or(what.User, what.Task), Detail: detail})
	})
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return assign.Released{}, err
	}
	if err != nil {
		return assign.Released{}, fmt.Errorf("release work: %w", err)
	}
	if !what.DryRun {
		for task, ids := range byTask {
			e.countClosed(task, assign.WorkReturned, len(ids))
		}
		e.wakeFreed(ctx, slices.Collect(maps.Keys(byTask))...)
	}
	return done, nil
}

func (e *Engine) release(ctx context.Context, tx pgx.Tx, what assign.Release, of int64, by string) (done assign.Released, byTask map[int64][]int64, err error) {
	rows, err := tx.Query(ctx, e.SQL(selectReleased), what.User, of)
	if err != nil {
		return done, nil, err
	}
	var ids []int64
	var task, id int64
	byTask = map[int64][]int64{}
	if _, err := pgx.ForEachRow(rows, []any{&task, &id}, func() error {
		ids, byTask[task] = append(ids, id), append(byTask[task], id)
		return nil
	}); err != nil {
		return done, nil, err
	}
	var token string
	if err := tx.QueryRow(ctx, tokenOf, ids).Scan(&token); err != nil {
		return done, nil, err
	}
	if what.DryRun {
		return assign.Released{Count: len(ids), Token: token}, nil, nil
	}
	if token != what.Token {
		return done, nil, assign.Refuse(assign.ChangedSet, "what is held has changed since the dry run: it is %d now; do the dry run again and check the count", len(ids))
	}
	var shared []int64
	if err = tx.QueryRow(ctx, e.SQL(releaseWork), ids, by).Scan(&done.Count, &shared); err == nil {
		err = settleWhatIsShared(ctx, tx, e.SQL, shared)
	}
	return done, byTask, err
}

// The rows stay as they were closed; beside them stands when they were put back, and by whom. The next attempt is the first
// again. If an item's places have become one while several held it, somebody else may hold it, or have put it off. Then it stays
// parked and is shared, so settleShared must follow: this statement may have waited for a closing of which it does not know.
const redriveWork = `
with redriven as (
  update getwork.work w
  set available_at = clock_timestamp(), redriven_by = $3
  where w.task_id = $1 and w.state = 'never' and w.redriven_by is null
    and case when $2::text[] is null then w.exhausted else w.item = any($2) end
  returning w.id, w.item
), ready as (
  update getwork.item i
  set due_at = case when exists (
      select from ` + records.Binding + ` w
      where w.task_id = i.task_id and w.item = i.item and w.id <> all (r.ids) and ` + records.Blocks + `) then 'infinity'::timestamptz end
  from (select item, array_agg(id) as ids from redriven group by item) r
  where i.task_id = $1 and i.item = r.item and i.done_at is null and i.due_at = 'infinity'
  returning r.ids[1] as id, i.due_at
)
select (select count(distinct item) from redriven), array(select id from ready where due_at is not null)`

// Redrive puts back items that were never to return: the named ones, or, if items is nil, those whose attempts were used up. It
// returns their number, and ignores named items that are not in that state.
func (e *Engine) Redrive(ctx context.Context, name string, items []string, by string) (n int64, err error) {
	for i, item := range items {
		if detail := assign.CheckItem(item); detail != "" {
			return 0, assign.RefuseField(fmt.Sprintf("items[%d]", i), "%s", detail)
		}
	}
	task, _, err := e.Records.Find(ctx, name, assign.Who{Anything: true})
	if err != nil {
		return 0, err
	}
	err = e.transact(ctx, func(tx pgx.Tx) (err error) {
		if _, err := e.openRound(ctx, tx, task); err != nil {
			return err
		}
		if n, err = redrive(ctx, tx, e.SQL, task, items, by); err != nil {
			return err
		}
		return auditor{e}.write(ctx, tx, audit.Act{Act: "items.redrive", Object: name, Detail: map[string]any{"named": items != nil, "count": n}})
	})
	if err != nil {
		return 0, fmt.Errorf("redrive: %w", err)
	}
	if n > 0 {
		e.Announce.Items(task)
		e.WakeLingering(task)
	}
	return n, nil
}

// redrive is what Redrive does under the assign lock.
func redrive(ctx context.Context, tx pgx.Tx, sql func(string) string, task int64, items []string, by string) (n int64, err error) {
	var shared []int64
	if err = tx.QueryRow(ctx, sql(redriveWork), task, items, by).Scan(&n, &shared); err == nil {
		err = settleWhatIsShared(ctx, tx, sql, shared)
	}
	return n, err
}

const (
	lockWork = `
select w.user_name, w.instance, w.slot, w.exclusive, w.item, w.run_id, coalesce(w.rank, 0), w.details::text, w.attempt,
  w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp()),
  exists (select from getwork.principal p where p.name = $2 and p.blocked_at is not null)
from getwork.work w
where w.id = $1
for update`

	closeReassigned = `
update getwork.work
set state = 'reassigned', closed_at = least(clock_timestamp(), lease_expires_at), closed_by = $2, closed_xid = pg_current_xact_id()
where id = $1 and state = 'held'`
)

// Reassign gives held work to another user, in the same place. A work row of their own begins with its lease anew, and the
// former holder's is closed as reassigned. The rules of the task apply as usual: [assign.NotAvailable] says which one forbids
// it. [assign.AlreadyClosed]: the work is not held any more.
func (e *Engine) Reassign(ctx context.Context, id int64, to, by string) (assign.Work, error) {
	if err := assign.CheckUser(to); err != nil {
		return assign.Work{}, err
	}
	old, _, err := e.work(ctx, id, assign.Disposition{})
	if assign.IsRefusal(err, assign.NotFound) {
		return assign.Work{}, noSuchWork(id)
	}
	if err != nil {
		return assign.Work{}, err
	}
	var given int64
	var r *round
	err = e.transactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
		if r, err = e.openRound(ctx, tx, old.TaskID); err != nil {
			return nil, err
		}
		if given, err = r.reassign(ctx, id, waiter{holder: assign.Holder{User: to}, wanted: 1}, by); err != nil || given == id {
			return nil, err
		}
		detail := map[string]any{"task": old.Task, "item": old.Item, "from": old.User, "to": to, "work": id, "given": given}
		return []notify.Change{{Task: old.TaskID, Work: []int64{id, given}}}, auditor{e}.write(ctx, tx, audit.Act{Act: "work.reassign", Object: old.User, Detail: detail})
	})
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return assign.Work{}, err
	}
	if err != nil {
		return assign.Work{}, fmt.Errorf("reassign work: %w", err)
	}
	if given != id {
		e.countClosed(old.TaskID, assign.WorkReassigned, 1)
		if r.brief {
			e.wakeSweep()
		}
		e.wakeFreed(ctx, old.TaskID)
	}
	w, _, err := e.work(ctx, given, assign.Disposition{})
	return w, err
}

func noSuchWork(id int64) error {
	return assign.Refuse(assign.NotFound, "there is no work %d; GET /api/v1/work lists all work", id)
}

// anyPlaces is more places than any item has: the place that is passed on is not counted again.
const anyPlaces = 1 << 20

// reassign returns the id of the new work, or id itself if its holder is the one it is to go to.
func (r *round) reassign(ctx context.Context, id int64, to waiter, by string) (given int64, err error) {
	var o offer
	var from assign.Holder
	var run *int64
	var slot, attempt int
	var held, blocked bool
	err = r.tx.QueryRow(ctx, r.e.SQL(lockWork), id, to.holder.User).Scan(&from.User, &from.Instance, &slot, &o.cand.Exclusive, &o.cand.Item, &run, &o.cand.Rank, &o.cand.Details, &attempt, &held, &blocked)
	if errors.Is(err, pgx.ErrNoRows) { // it was closed, and has been removed
		return 0, noSuchWork(id)
	}
	if err != nil {
		return 0, err
	}
	if !held {
		return 0, assign.Refuse(assign.AlreadyClosed, "work %d is not held any more; `GET /api/v1/work?item=` shows what became of it", id)
	}
	if from == to.holder {
		return id, nil
	}
	if blocked {
		return 0, assign.Refuse(assign.NotAvailable, "%s is blocked, and gets no work; choose somebody else", to.holder.User)
	}
	if _, err := r.tx.Exec(ctx, r.e.SQL(closeReassigned), id, by); err != nil {
		return 0, err
	}
	// The item without its present holder: their place and their group are free.
	stands, err := r.availability(ctx, &named{cand: ranking.Candidate{Item: o.cand.Item, Slots: anyPlaces}, held: true})
	if err != nil {
		return 0, err
	}
	stands.cand, stands.attempt = o.cand, attempt
	if _, err := r.grant(ctx, to, stands); err != nil {
		return 0, err
	}
	return r.give(ctx, to, stands, slot, run)
}

const (
	// The assign lock: no round decides meanwhile. The run lock is not taken, so a pause does not wait for a query.
	lockPaused = `select version, name, paused, deleted_at is not null from getwork.task_state where task_id = $1 for no key update`

	insertPause = `
insert into getwork.task_pause (task_id, version, n, paused, by)
select $1, $2, coalesce((select p.n from getwork.task_pause p where p.task_id = $1 order by p.version desc, p.n desc limit 1), 0) + 1, $3, $4`
)

// SetPaused pauses or resumes a task. Unlike [Engine.UpdateTask] it makes no version, so it disturbs nobody who edits the
// task at the same time; [records.Records.TaskLog] lists it. A task that is paused already stays as it is. only is the version
// that the caller has seen: if the task is at another, SetPaused is refused with [assign.StaleVersion]; 0: any version.
func (e *Engine) SetPaused(ctx context.Context, name string, paused bool, only int, by string) (assign.Task, error) {
	t, err := e.Records.Task(ctx, name)
	if err != nil {
		return assign.Task{}, err
	}
	changes := false
	err = e.transact(ctx, func(tx pgx.Tx) error {
		var version int
		var was, deleted bool
		if err := tx.QueryRow(ctx, e.SQL(lockPaused), t.ID).Scan(&version, &t.Name, &was, &deleted); err != nil {
			return err
		}
		if deleted {
			return assign.Refuse(assign.NotFound, "task %q was deleted", name)
		}
		if only != 0 && only != version {
			return assign.Refuse(assign.StaleVersion, "task %q is at version %d, not %d; read it again, or pause it without If-Match", name, version, only)
		}
		if changes = was != paused; !changes {
			return nil
		}
		if _, err := tx.Exec(ctx, e.SQL(insertPause), t.ID, version, paused, by); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, e.SQL(updateSettings), t.ID, version, t.Name, paused, false, false, nil); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, e.SQL(lookAtOnce), t.ID); err != nil {
			return err
		}
		act := "task.resume"
		if paused {
			act = "task.pause"
		}
		return auditor{e}.write(ctx, tx, audit.Act{Act: act, Object: t.Name, Detail: map[string]int{"version": version}})
	})
	var refusal *assign.Refusal
	switch {
	case errors.As(err, &refusal):
		return assign.Task{}, refusal
	case err != nil:
		return assign.Task{}, fmt.Errorf("pause task: %w", err)
	case changes:
		taskEditor{e}.settingsChanged(t.ID)
	}
	return e.Records.Task(ctx, t.Name)
}
