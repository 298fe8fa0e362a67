package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/records"
	"getwork/notify"
)

// Whoever is away gets no work: a round reads under the assign lock who is, and leaves them no room. When an absence begins, what its
// user waits for ends, and what they hold goes where its task says. Each of these steps is found again by its condition: somebody is
// away, and waits or holds such work. So every node looks for it, when the next absence begins and as often as the rescuer checks. That
// also finds what a node left that died, a click that committed beside the beginning, and work of a round that had the assign lock before.

// heldAway is true for an absence a whose user holds work of a task that does not let them keep it. Work whose lease has run out is the
// sweep's. The order is that of the index by user: without it PostgreSQL may read all work, once for each absence.
const heldAway = `exists (
      select from (
        select w.task_id from getwork.work w
        where w.user_name = a.user_name and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
        order by w.user_name, w.instance, w.task_id, w.item) w
      join getwork.task_state s on s.task_id = w.task_id
      join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
      where v.on_away in ('release', 'to'))`

const (
	endAbsences = `
update getwork.absence a set ended_at = a.until_at
where a.ended_at is null and a.from_at <= (select clock_timestamp()) and a.until_at <= (select clock_timestamp())
returning a.id`

	// The array makes PostgreSQL look up who is away, however many others wait.
	endAway = `
with over as (
  select r.id
  from getwork.work_requested r
  where r.id = any (array(
      select q.id
      from getwork.absence a join getwork.work_requested q on q.user_name = a.user_name
      where ($1 = '' or a.user_name = $1) and ` + records.InForce + ` and q.state = 'pending'))
    and r.state = 'pending'
  order by r.id
  for update
)
update getwork.work_requested r
set state = 'none', requested = 0, reason = 'away', completed_at = clock_timestamp()
from over o
where r.id = o.id and r.state = 'pending'
returning r.task_id, r.id`
)

// EndAway ends, with nothing, what a user waits for who is away; of all users, if it is empty. It belongs in the transaction in which
// an absence begins, before any work is let go of.
func (e *Engine) EndAway(ctx context.Context, tx pgx.Tx, user string) ([]notify.Change, error) {
	changes, err := requestsOf(ctx, tx, e.SQL(endAway), user)
	if err != nil {
		return nil, fmt.Errorf("end requests of people who are away: %w", err)
	}
	return changes, nil
}

// EndedAway counts requests that EndAway has ended, after its commit, and wakes their tasks' callers.
func (e *Engine) EndedAway(ended []notify.Change) {
	for _, c := range ended {
		e.countEnd(c.Task, assign.None, 1)
		e.Poke(c.Task)
	}
}

// treatAway does what everybody's absences begin with, as far as it has not been done, and ends those whose time is over.
func (e *Engine) treatAway(ctx context.Context) error {
	var ended []notify.Change
	err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) (changes []notify.Change, err error) {
		rows, err := tx.Query(ctx, e.SQL(endAbsences))
		if err != nil {
			return nil, err
		}
		over, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		ended, err = e.EndAway(ctx, tx, "")
		return append(ended, notify.Change{Absences: over}), err
	})
	if err != nil {
		return fmt.Errorf("end absences: %w", err)
	}
	e.EndedAway(ended)
	return e.ReleaseAway(ctx, "")
}

const selectTasksAway = `
select w.task_id, coalesce(array_agg(distinct a.substitute) filter (where a.substitute is not null), '{}')
from getwork.absence a
join getwork.work w on w.user_name = a.user_name and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
join getwork.task_state s on s.task_id = w.task_id
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where ($1 = '' or a.user_name = $1) and ` + records.InForce + ` and v.on_away in ('release', 'to')
group by w.task_id
order by w.task_id`

// ReleaseAway takes from a user who is away the work that its task doesn't let them keep; from all users, if it is empty. It reads
// about their substitutes before it takes any lock.
func (e *Engine) ReleaseAway(ctx context.Context, user string) error {
	rows, err := e.DB.Query(ctx, e.SQL(selectTasksAway), user)
	if err != nil {
		return fmt.Errorf("look for work of people who are away: %w", err)
	}
	substitutes := map[int64][]string{}
	var tasks []int64
	var task int64
	var names []string
	if _, err := pgx.ForEachRow(rows, []any{&task, &names}, func() error {
		tasks, substitutes[task] = append(tasks, task), names
		names = nil
		return nil
	}); err != nil {
		return fmt.Errorf("look for work of people who are away: %w", err)
	}
	var freed []int64 // at the end, so that nobody is served with what the next task is about to give to a substitute
	defer func() {
		if len(freed) > 0 {
			e.WakeFreed(ctx, freed...)
		}
	}()
	for _, task := range tasks {
		known := map[string]records.Known{}
		if names := substitutes[task]; len(names) > 0 {
			all, err := e.Records.Known(ctx, names...)
			if err != nil {
				return err
			}
			for i, name := range names {
				known[name] = all[i]
			}
		}
		for more := true; more; {
			var took bool
			took, more, err = e.releaseAwayOf(ctx, task, user, known)
			if took && !slices.Contains(freed, task) {
				freed = append(freed, task)
			}
			if err != nil {
				return fmt.Errorf("release work of people who are away: %w", err)
			}
		}
	}
	return nil
}

const (
	awayBatch = 500 // bounds one transaction

	// Of several absences in force, the one that was entered last decides who entered it and who the substitute is.
	selectHeldAway = `
select w.id, a.created_by, coalesce(a.substitute, '')
from getwork.work w
cross join lateral (
  select a.created_by, a.substitute
  from getwork.absence a
  where a.user_name = w.user_name and ` + records.InForce + `
  order by a.id desc
  limit 1
) a
where w.id = any (array(
    select h.id
    from (select distinct a.user_name from getwork.absence a where ($2 = '' or a.user_name = $2) and ` + records.InForce + `) u
    cross join lateral (select o.id from getwork.work o where o.user_name = u.user_name and o.state = 'held' and o.task_id + 0 = $1) h))
  and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
order by w.id
limit $3
for update of w`
)

// takenAway is what one transaction took from people who are away.
type takenAway struct{ returned, passed, given []int64 }

// releaseAwayOf takes some of what people who are away hold of a task, in one transaction, and reports whether it has, and whether there
// may be more.
func (e *Engine) releaseAwayOf(ctx context.Context, task int64, user string, known map[string]records.Known) (took, more bool, err error) {
	type held struct {
		id         int64
		by         string
		substitute string // empty: nobody
	}
	var r *round
	var taken takenAway
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
		taken, more = takenAway{}, false
		if r, err = e.openRound(ctx, tx, task); err != nil {
			return nil, err
		}
		if r.state.OnAway == assign.KeepAway { // changed meanwhile
			return nil, nil
		}
		rows, err := tx.Query(ctx, e.SQL(selectHeldAway), task, user, awayBatch)
		if err != nil {
			return nil, err
		}
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h held, err error) {
			err = row.Scan(&h.id, &h.by, &h.substitute)
			return h, err
		})
		if err != nil {
			return nil, err
		}
		more = len(all) == awayBatch
		slices.SortStableFunc(all, func(a, b held) int { // the substitutes get seats in the order of rounds: see insertSeated
			return strings.Compare(a.substitute, b.substitute)
		})
		back := map[string][]int64{} // to be returned, by who entered the absence
		for _, h := range all {
			if h.substitute != "" && r.state.OnAway == assign.PassAway {
				to, read := known[h.substitute]
				if !read { // they were named meanwhile; the next look finds it
					continue
				}
				given, err := r.passAway(ctx, h.id, to, h.by)
				if err != nil {
					return nil, err
				}
				if given != 0 {
					taken.passed, taken.given = append(taken.passed, h.id), append(taken.given, given)
					continue
				}
			}
			back[h.by] = append(back[h.by], h.id)
		}
		for by, ids := range back {
			closed, err := e.Return(ctx, tx, ids, by, assign.CodeAway, nil)
			if err != nil {
				return nil, err
			}
			taken.returned = append(taken.returned, closed...)
		}
		changed := append(append(taken.returned, taken.passed...), taken.given...)
		return []notify.Change{{Task: task, Work: changed}}, nil
	})
	if err != nil {
		return false, false, err
	}
	e.CountClosed(task, assign.WorkReturned, len(taken.returned))
	e.CountClosed(task, assign.WorkReassigned, len(taken.passed))
	if r.brief {
		e.wakeSweep()
	}
	took = len(taken.returned)+len(taken.passed) > 0
	return took, took && more, nil
}

// passAway gives work to a substitute as [Engine.PassOn] would; 0: it is not to be theirs, and the work is as it was.
func (r *round) passAway(ctx context.Context, id int64, to records.Known, by string) (given int64, err error) {
	if _, err := r.tx.Exec(ctx, "savepoint passed"); err != nil {
		return 0, err
	}
	w := waiter{holder: to.Who.Holder, wanted: 1, groups: waitersGroups(to.Who), program: to.Who.Program}
	for range attempts {
		given, err = r.reassign(ctx, id, w, to.Seen, by)
		var refusal *assign.Refusal
		if err == nil || !again(err) && !errors.As(err, &refusal) {
			return given, err
		}
		taken := seatTaken(err) // by another task's round: they may have another
		if _, err = r.tx.Exec(ctx, "rollback to savepoint passed"); err != nil || !taken {
			return 0, err
		}
	}
	return 0, nil
}

// Locked in the order of ids. If two return the same work, one waits for the other, and then finds it closed.
var returnWork = `
with mine as materialized (
  select w.id
  from getwork.work w
  where w.id = any($1::bigint[]) and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())
  order by w.id
  for update
), ended as (
  update getwork.work w
  set state = 'returned', after = interval '0', available_at = clock_timestamp(),
      closed_at = clock_timestamp(), closed_by = $2, closed_xid = pg_current_xact_id(),
      code = case when w.task_id = any($4) then $5 else $3 end
  from mine
  where w.id = mine.id and case w.state when 'held' then true end -- see closeMany
  returning w.id, w.task_id, w.item, w.state, w.available_at
), ` + SettleMany + `
select array(select id from ended)`

// Coded is the code for which work of some tasks is returned.
type Coded struct {
	Code  string
	Tasks []int64
}

// Return returns held work at once, in the name of somebody else than its holder, and returns what it has closed. code is one of the
// server's own; that of work of some tasks may be another.
func (e *Engine) Return(ctx context.Context, tx pgx.Tx, ids []int64, by, code string, some *Coded) (closed []int64, err error) {
	if some == nil {
		some = &Coded{Code: code}
	}
	err = tx.QueryRow(ctx, e.SQL(returnWork), ids, by, code, some.Tasks, some.Code).Scan(&closed)
	return closed, err
}
