package manage

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
	"getwork/assign/engine"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/notify"
)

// releaseBatch is how much work one transaction of a release lets go of.
const releaseBatch = 5000

// heldWork is work that is to be released: its task, and its id.
type heldWork struct{ task, id int64 }

// Release returns the held work that it names, and cancels what its user waits for. Otherwise a request of theirs that lingers would get
// the work again at once. A dry run does neither: it counts both, and returns a token for that set of work. If the set is not the
// token's any more, nothing is released ([assign.ChangedSet]).
//
// More than releaseBatch is released in several transactions, each of them whole: with its row of the audit, and its announcement. The
// first one compares the set, and cancels the requests before any work is free. A node that dies later leaves the rest held, for another
// release. Nothing is released that was not in the set; what holders let go of meanwhile is not counted.
func Release(ctx context.Context, e *engine.Engine, what assign.Release, by string) (done assign.Released, err error) {
	if what.User == "" && what.Task == "" {
		return done, assign.RefuseField("user", "name the user or the task whose work to release, or both")
	}
	if !what.DryRun && what.Token == "" {
		return done, assign.RefuseField("token", `a release names the token of a dry run: send "dry_run": true first, and then its token`)
	}
	if what.User != "" {
		if err := assign.CheckUser(what.User); err != nil {
			return done, err
		}
	}
	var task int64
	if what.Task != "" {
		if task, _, err = e.Records.Find(ctx, what.Task, assign.Who{Anything: true}); err != nil {
			return done, err
		}
	}
	var set []heldWork
	if what.DryRun {
		err = pg.Transact(ctx, e.DB, func(tx pgx.Tx) (err error) {
			if set, done.Token, err = heldSet(ctx, e, tx, what.User, task); err != nil {
				return err
			}
			done.Count = len(set)
			if what.Code != "" {
				if _, err = codedTasks(ctx, e, tx, set, what.Code); err != nil {
					return err
				}
			}
			done.Requests, err = e.CountWaiting(ctx, tx, what.User, task)
			return err
		})
		if err != nil {
			return assign.Released{}, fmt.Errorf("count what is to be released: %w", err)
		}
		return done, nil
	}
	coded := engine.Coded{Code: what.Code}
	for first, rest := true, []heldWork(nil); first || len(rest) > 0; first = false {
		var part released
		err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) (changes []notify.Change, err error) {
			part = released{}
			if set = rest; first {
				if part.cancelled, set, err = beginRelease(ctx, e, tx, what, task); err != nil {
					return nil, err
				}
				if coded.Tasks, err = codedTasks(ctx, e, tx, set, what.Code); err != nil {
					return nil, err
				}
			}
			batch := set[:min(len(set), releaseBatch)]
			if part.byTask, err = releasePart(ctx, e, tx, batch, by, &coded); err != nil {
				return nil, err
			}
			if n := part.count(); first && n != len(batch) {
				return nil, changedSet(len(set) - len(batch) + n)
			}
			changes = part.cancelled
			for task, ids := range part.byTask {
				changes = append(changes, notify.Change{Task: task, Work: ids})
			}
			detail := map[string]any{"user": what.User, "task": what.Task, "count": part.count(), "requests": len(part.cancelled)}
			if what.Code != "" {
				detail["code"] = what.Code
			}
			return changes, e.Audit.Write(ctx, tx, audit.Act{Act: "work.release", Object: cmp.Or(what.User, what.Task), Detail: detail})
		})
		if err != nil {
			return assign.Released{}, stopped(e, err, done.Count, done.Count+len(rest))
		}
		e.CountCancelled(part.cancelled)
		for task, ids := range part.byTask {
			e.CountClosed(task, assign.WorkReturned, len(ids))
		}
		e.WakeFreed(ctx, slices.Collect(maps.Keys(part.byTask))...)
		for _, r := range part.cancelled {
			e.Poke(r.Task)
		}
		done.Count, done.Requests = done.Count+part.count(), done.Requests+len(part.cancelled)
		rest = set[min(len(set), releaseBatch):]
	}
	return done, nil
}

// released is what one transaction of a release has done.
type released struct {
	byTask    map[int64][]int64
	cancelled []notify.Change // one for each request
}

func (p *released) count() (n int) {
	for _, ids := range p.byTask {
		n += len(ids)
	}
	return n
}

// stopped returns the error of a release that ended early. Trying again would find another set if some of it is released already.
func stopped(e *engine.Engine, err error, done, of int) error {
	var refusal *assign.Refusal
	switch {
	case errors.As(err, &refusal):
		return err
	case done == 0:
		return fmt.Errorf("release work: %w", err)
	}
	e.Log.Warn("a release ended before all was released", "released", done, "of", of, "error", err)
	return assign.Refuse(assign.Unavailable, "only %d of %d were released, since the database did not answer in time; do the dry run again, and release the rest", done, of)
}

func changedSet(now int) error {
	return assign.Refuse(assign.ChangedSet, "what is held has changed since the dry run: it is %d now; do the dry run again and check the count", now)
}

const (
	// Work whose lease has run out is the sweep's: released, it would count as returned instead of expired, and its next attempt as
	// the first.
	selectReleased = `
select w.task_id, w.id
from getwork.work w
where w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
  and ($1 = '' or w.user_name = $1) and ($2 = 0 or w.task_id = $2)
order by w.id`

	tokenOf = `select encode(sha256(convert_to(coalesce(string_agg(id::text, ',' order by id), ''), 'UTF8')), 'hex') from unnest($1::bigint[]) as w (id)`
)

// heldSet reads what is held of a user (empty: of all) and a task (0: of all), and the token that stands for it.
func heldSet(ctx context.Context, e *engine.Engine, tx pgx.Tx, user string, task int64) (set []heldWork, token string, err error) {
	rows, err := tx.Query(ctx, e.SQL(selectReleased), user, task)
	if err != nil {
		return nil, "", err
	}
	var ids []int64
	var one heldWork
	if _, err := pgx.ForEachRow(rows, []any{&one.task, &one.id}, func() error {
		set, ids = append(set, one), append(ids, one.id)
		return nil
	}); err != nil {
		return nil, "", err
	}
	err = tx.QueryRow(ctx, tokenOf, ids).Scan(&token)
	return set, token, err
}

// beginRelease cancels what the user waits for, and returns it and the set, which must be the token's. Requests come before work, as
// in every transaction's order of locks. A round that has read such a request is waited for; what it gives
// is then held, too, so the set is no longer the token's.
func beginRelease(ctx context.Context, e *engine.Engine, tx pgx.Tx, what assign.Release, task int64) (cancelled []notify.Change, set []heldWork, err error) {
	if what.User != "" {
		if cancelled, err = e.CancelWaiting(ctx, tx, what.User, task); err != nil {
			return nil, nil, err
		}
	}
	set, token, err := heldSet(ctx, e, tx, what.User, task)
	if err == nil && token != what.Token {
		err = changedSet(len(set))
	}
	return cancelled, set, err
}

const selectReleasedTasks = `
select s.task_id, ` + records.OutcomeColumns + `
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.task_id = any($1) and v.outcomes is not null
order by s.name`

// codedTasks returns those tasks of the set that have outcomes. It refuses a code that one of them does not know as a return, and none if one
// requires it.
func codedTasks(ctx context.Context, e *engine.Engine, tx pgx.Tx, set []heldWork, code string) (tasks []int64, err error) {
	named := map[int64]bool{}
	for _, w := range set {
		named[w.task] = true
	}
	rows, err := tx.Query(ctx, e.SQL(selectReleasedTasks), slices.Collect(maps.Keys(named)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var task int64
		var r assign.OutcomeRules
		if err := rows.Scan(append([]any{&task}, records.IntoOutcomes(&r)...)...); err != nil {
			return nil, err
		}
		if code == "" && !r.RequireCode {
			continue
		}
		if err := r.Returns(code); err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	return tasks, rows.Err()
}

// releasePart closes what is still held of a batch, and returns that by task.
func releasePart(ctx context.Context, e *engine.Engine, tx pgx.Tx, batch []heldWork, by string, coded *engine.Coded) (byTask map[int64][]int64, err error) {
	ids, taskOf := make([]int64, len(batch)), make(map[int64]int64, len(batch))
	for i, w := range batch {
		ids[i], taskOf[w.id] = w.id, w.task
	}
	closed, err := e.Return(ctx, tx, ids, by, assign.CodeReleased, coded)
	if err != nil {
		return nil, err
	}
	byTask = map[int64][]int64{}
	for _, id := range closed {
		byTask[taskOf[id]] = append(byTask[taskOf[id]], id)
	}
	return byTask, nil
}

// The rows stay as they were closed; beside them stands when they were put back, and by whom. The next attempt is the first
// again. If several had an item before its places became one, another of them may have put it off: it is due when
// that is over.
const redriveWork = `
with redriven as (
  update getwork.work w
  set available_at = clock_timestamp(), redriven_by = $3
  where w.task_id = $1 and w.state = 'never' and w.redriven_by is null
    and case when $2::text[] is null then w.exhausted else w.item = any($2) end
  returning w.id, w.item
), ready as (
  update getwork.item i
  set due_at = (
      select max(coalesce(w.available_at, 'infinity'))
      from ` + records.Binding + ` w
      where w.task_id = i.task_id and w.item = i.item and w.id <> all (r.ids) and ` + records.Blocks + `)
  from (select item, array_agg(id) as ids from redriven group by item) r
  where i.task_id = $1 and i.item = r.item and i.done_at is null and i.due_at = 'infinity'
)
select count(distinct item) from redriven`

// Redrive puts back items that were never to return: the named ones, or, if items is nil, those whose attempts were used up. It
// returns their number, and ignores named items that are not in that state.
func Redrive(ctx context.Context, e *engine.Engine, name string, items []string, by string) (n int64, err error) {
	for i, item := range items {
		if detail := assign.CheckItem(item); detail != "" {
			return 0, assign.RefuseField(fmt.Sprintf("items[%d]", i), "%s", detail)
		}
	}
	task, _, err := e.Records.Find(ctx, name, assign.Who{Anything: true})
	if err != nil {
		return 0, err
	}
	err = pg.Transact(ctx, e.DB, func(tx pgx.Tx) (err error) {
		if err := e.LockTask(ctx, tx, task); err != nil {
			return err
		}
		if n, err = redrive(ctx, tx, e.SQL, task, items, by); err != nil {
			return err
		}
		return e.Audit.Write(ctx, tx, audit.Act{Act: "items.redrive", Object: name, Detail: map[string]any{"named": items != nil, "count": n}})
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
	err = tx.QueryRow(ctx, sql(redriveWork), task, items, by).Scan(&n)
	return n, err
}

// Reassign gives held work to another user, in the same place. A work row of their own begins with its lease anew, and the
// former holder's is closed as reassigned. The rules of the task apply as usual, with the groups of the user's last log-in or request:
// [assign.NotAvailable] says which one forbids it. It is also the refusal of a name that nobody has, which may be mistyped: that one
// names the field force. [assign.AlreadyClosed]: the work is not held any more.
func Reassign(ctx context.Context, e *engine.Engine, id int64, what assign.Reassignment, by string) (assign.Work, error) {
	to := what.User
	if err := assign.CheckUser(to); err != nil {
		return assign.Work{}, err
	}
	known, err := e.Records.Known(ctx, to)
	if err != nil {
		return assign.Work{}, err
	}
	old, err := e.Records.Work(ctx, id)
	if assign.IsRefusal(err, assign.NotFound) {
		return assign.Work{}, engine.NoSuchWork(id)
	}
	if err != nil {
		return assign.Work{}, err
	}
	given, err := e.PassOn(ctx, old.TaskID, id, known[0].Who, known[0].Seen || what.Force, by, func(tx pgx.Tx, given int64) error {
		detail := map[string]any{"task": old.Task, "item": old.Item, "from": old.User, "to": to, "work": id, "given": given}
		return e.Audit.Write(ctx, tx, audit.Act{Act: "work.reassign", Object: old.User, Detail: detail})
	})
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return assign.Work{}, err
	}
	if err != nil {
		return assign.Work{}, fmt.Errorf("reassign work: %w", err)
	}
	return e.Records.Work(ctx, given)
}

// Give gives an item that nobody holds to a user who has not asked for it: a claim in their name. Their rules apply, with the groups of
// their last log-in or request, and it is refused as a claim and [Reassign] are; given is false if they held the item already.
func Give(ctx context.Context, e *engine.Engine, task, item string, to assign.Reassignment) (w assign.Work, given bool, err error) {
	if err := assign.CheckUser(to.User); err != nil {
		return assign.Work{}, false, err
	}
	return e.ClaimFor(ctx, task, item, to, func(tx pgx.Tx, id int64) error {
		return e.Audit.Write(ctx, tx, audit.Act{Act: "items.give", Object: to.User, Detail: map[string]any{"task": task, "item": item, "work": id}})
	})
}
