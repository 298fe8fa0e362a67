package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/records"
)

// servable is true for a pending request r that a round could end now, if the task's state allows it: no round has read it
// yet, or its look_after has come. It does not compare the request's time or id with a run's: a click can be stamped before a
// round's read and commit after it.
const servable = `r.state = 'pending' and (r.look_after is null or r.look_after <= clock_timestamp())`

// taskView is what scheduling sees of a task, before any lock or right after the run lock.
type taskView struct {
	assign.Settings
	task    int64
	version int
	backend int32 // the server process that holds the run lock for us
	view    plan.View
	next    time.Duration // until the clock alone changes the view; 0: never
}

const selectTaskView = `
select s.version, s.deleted_at is not null,
  s.paused or coalesce(s.failed_until > clock_timestamp(), false) or coalesce(s.retry_at > clock_timestamp(), false),
  ` + shelfServes + `, ` + shelfExpired + `, s.paused,
  exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after <= clock.at)
    or exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after is null),
  exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after <= clock.at),
  exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.linger_until <= clock.at),
  exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending'),
  v.query is null and exists (
    select from getwork.item i where i.task_id = s.task_id and i.done_at is null and i.due_at < 'infinity' and i.due_at <= clock.at),
  not s.paused and s.deleted_at is null and ` + inUse + `
    and not coalesce(s.failed_until > clock_timestamp(), false) and not coalesce(s.retry_at > clock_timestamp(), false),
  ` + shelfLife + `, s.name,
  coalesce((
    select extract(epoch from min(t.at) - clock.at)
    from (
      select min(r.look_after) as at from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after > clock.at
      union all
      select min(r.linger_until) from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.linger_until > clock.at
      union all
      select unnest(array[s.failed_until, s.retry_at])
      union all
      select min(i.due_at) from getwork.item i where v.query is null and i.task_id = s.task_id and i.done_at is null and i.due_at < 'infinity'
    ) t
    where t.at > clock.at
      and exists (select from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending')), 0)::float8,
  ` + records.SettingsColumns + `
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
left join getwork.run u on u.id = s.shelf_run
cross join (select clock_timestamp() as at offset 0) clock
where s.task_id = $1`

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// aside reads one row in a transaction, and releases the tables that it read. Otherwise their locks would last until the
// transaction ends, which may be as long as a user's query. A migration would wait for that, and everybody behind the
// migration.
type aside struct{ tx pgx.Tx }

// QueryRow sets the savepoint in a statement of its own. In a batch the query would be prepared before the savepoint exists,
// and preparing locks its tables, too.
func (a aside) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if _, err := a.tx.Exec(ctx, "savepoint aside"); err != nil {
		return asideRow{err: err}
	}
	return asideRow{a, ctx, a.tx.QueryRow(ctx, sql, args...), nil}
}

type asideRow struct {
	aside
	ctx context.Context
	row pgx.Row
	err error
}

// Scan implements [pgx.Row].
func (r asideRow) Scan(into ...any) error {
	if r.err == nil {
		r.err = r.row.Scan(into...)
	}
	if r.err == nil {
		_, r.err = r.tx.Exec(r.ctx, "rollback to savepoint aside")
	}
	return r.err
}

// readTaskView reads a task in one statement, and so from one snapshot. db is a pool, or aside in the run lock's transaction. A view
// that was read without the lock is a hint: what it leads to reads again under its lock.
func (e *Engine) readTaskView(ctx context.Context, db queryer, task int64) (taskView, error) {
	p := taskView{task: task}
	var next float64
	var shelf shelfScan
	v := &p.view
	into := []any{&p.version, &v.Deleted, &v.Held, &v.Serves, &v.Stale, &v.Paused, &v.Waits, &v.Due, &v.Over, &v.Pending, &v.FellDue, &v.Refresh}
	into = append(append(into, shelf.into()...), &p.Name, &next)
	if err := db.QueryRow(ctx, e.SQL(selectTaskView), task).Scan(append(into, records.IntoSettings(&p.Settings)...)...); err != nil {
		return p, fmt.Errorf("read the task: %w", err)
	}
	v.Stale = v.Stale && v.Serves
	p.Paused, v.Inbox, v.Recheck = v.Paused, p.Inbox(), p.Recheck != ""
	p.next = time.Duration(next * float64(time.Second))
	in, renewed := refresher{e}.refreshIn(&shelf)
	v.Refresh = v.Refresh && renewed && in <= 0
	return p, nil
}

// lockedState is what the assign lock protects, read after it was taken.
type lockedState struct {
	assign.Settings
	version  int
	deleted  bool
	failures int
	retries  int           // recent ones; older ones are forgotten
	retrying time.Duration // time since the first of them

	shelfRun    int64      // the run whose result is on the shelf; 0: none
	shelfFrom   int64      // candidates of a lower rank are gone
	shelfCut    bool       // the run found more than it could keep
	shelfUsable int64      // rows of the shelf's run with a usable item
	shelfTaken  bool       // some of them are held or put off, or were handed out since
	shelfUsed   bool       // some of them were handed out since
	fresh       bool       // the shelf can be handed out
	stale       bool       // although it has expired
	rankedAt    *time.Time // of the shelf's run

	conflicts []int64 // tasks that this one conflicts with
}

// serves reports whether a round can hand something out without a run.
func (s *lockedState) serves() bool { return (s.fresh || s.Inbox()) && !s.Paused && !s.deleted }
