package assign

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/plan"
	"getwork/notify"
)

// round is one transaction's work under the assign lock: read who waits now, decide, write, announce. It is used
// for a run's result, for a fresh shelf, and for a run that failed. The caller begins the transaction and commits.
type round struct {
	e     *Engine
	tx    pgx.Tx
	id    int64
	task  int64
	state lockedState

	waiting  []waiter
	answered []int64 // requests that this round ended
}

// lockedState is what the assign lock protects, read after it was taken.
type lockedState struct {
	Settings
	deleted  bool
	failures int
	retries  int           // those of long ago are forgotten
	retrying time.Duration // since the first of the retries

	shelfRun    int64
	shelfFrom   int64
	shelfCut    bool
	shelfUsable int64 // rows of the shelf's run with a usable item
	fresh       bool
}

// waiter is a pending request, its row locked.
type waiter struct {
	id      int64
	holder  Holder
	wanted  int
	lingers bool // and its time is not over
}

const (
	lockAssign = `select from getwork.task_state where task_id = $1 for no key update`

	// A statement of its own, after the lock: a lock that had to wait returns the row as it is now, but what
	// was joined to it as it was when the statement began.
	selectState = `
select nextval('getwork.round'), s.name, s.paused, s.deleted_at is not null,
  s.failures,
  case when s.retry_at > clock_timestamp() - v.query_timeout - interval '1 minute' then s.retries else 0 end,
  coalesce(extract(epoch from clock_timestamp() - s.retry_since), 0)::float8,
  coalesce(s.shelf_run, 0), s.shelf_from, s.shelf_cut, coalesce(u.given - u.passed_over, 0),
  coalesce(s.fresh_until > clock_timestamp() and s.shelf_run is not null, false),
  ` + settingsColumns + `
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
left join getwork.run u on u.id = s.shelf_run
where s.task_id = $1`

	// Everybody who waits now, also those who came during the query, first come first. The rows are locked: a
	// cancel that comes later finds them answered, one that came before took them off the list.
	selectWaiting = `
select id, user_name, instance, wanted, coalesce(linger_until > clock_timestamp(), false)
from getwork.work_requested
where task_id = $1 and state = 'pending'
order by id
for update`
)

// openRound takes the assign lock and reads what it protects.
func (e *Engine) openRound(ctx context.Context, tx pgx.Tx, task int64) (*round, error) {
	r := &round{e: e, tx: tx, task: task}
	var batch pgx.Batch
	batch.Queue(e.SQL(lockAssign), task)
	batch.Queue(e.SQL(selectState), task)
	results := tx.SendBatch(ctx, &batch)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return nil, fmt.Errorf("take the assign lock: %w", err)
	}
	s := &r.state
	var retrying float64
	settings, done := intoSettings(&s.Settings)
	into := []any{&r.id, &s.Name, &s.Paused, &s.deleted, &s.failures, &s.retries, &retrying,
		&s.shelfRun, &s.shelfFrom, &s.shelfCut, &s.shelfUsable, &s.fresh}
	if err := results.QueryRow().Scan(append(into, settings...)...); err != nil {
		return nil, fmt.Errorf("read the task's state: %w", err)
	}
	done()
	s.retrying = time.Duration(retrying * float64(time.Second))
	return r, nil
}

// readWaiting locks and reads who waits.
func (r *round) readWaiting(ctx context.Context) error {
	rows, err := r.tx.Query(ctx, r.e.SQL(selectWaiting), r.task)
	if err != nil {
		return fmt.Errorf("read who waits: %w", err)
	}
	r.waiting, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (waiter, error) {
		var w waiter
		err := row.Scan(&w.id, &w.holder.User, &w.holder.Instance, &w.wanted, &w.lingers)
		return w, err
	})
	if err != nil {
		return fmt.Errorf("read who waits: %w", err)
	}
	return nil
}

// supply is where a round's items come from.
type supply interface {
	source() plan.Source
	// take reads the best items that can be handed out now, at most n, and whether those were all.
	take(ctx context.Context, r *round, n int) (items []ranked, all bool, err error)
	cut() bool
	usable() int64 // how many rows of the query had a usable item, handed out or not
	runID() int64  // the run that ranked them
	settle(next int64, spent bool) (statement string, args []any)
}

// errMoved: something that was read was changed before it was written, though all who change it hold the same
// locks. Plan and write are repeated.
var errMoved = errors.New("a request was ended, or an item taken, behind the round's back")

// attempts is how often a round plans again on the result at hand. More than one needs somebody who holds no lock.
const attempts = 5

// serve hands out what the supply has to those who wait.
func (r *round) serve(ctx context.Context, from supply) error {
	var err error
	for range attempts {
		if err = r.readWaiting(ctx); err != nil {
			return err
		}
		if err = r.assign(ctx, from); err == nil {
			return nil
		}
		if !again(err) {
			return err
		}
		r.e.Log.Warn("round planned again", "task", r.state.Name, "round", r.id, "cause", err)
		if _, back := r.tx.Exec(ctx, "rollback to savepoint planned"); back != nil {
			return fmt.Errorf("plan again: %w", back)
		}
	}
	return fmt.Errorf("hand out: %w", err)
}

// again reports whether the constraints refused what was planned, or a row was not as it had been read.
func again(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, errMoved) || errors.As(err, &pg) && pg.Code == "23505"
}

// assign plans once, and writes the plan.
func (r *round) assign(ctx context.Context, from supply) error {
	requests := make([]plan.Request, len(r.waiting))
	wanted := 0
	for i, w := range r.waiting {
		requests[i] = plan.Request{ID: w.id, Wanted: w.wanted, Lingers: w.lingers}
		wanted += w.wanted
	}
	items, all, err := from.take(ctx, r, wanted)
	if err != nil {
		return fmt.Errorf("read what can be handed out: %w", err)
	}
	r.e.Steps(ctx, StepRead)
	p := plan.Assign(requests, plan.Supply{Source: from.source(), Items: len(items), Cut: from.cut()})
	return r.write(ctx, from, p, items, all)
}

const (
	insertWork = `
insert into getwork.work (task_id, item, user_name, instance, request_id, run_id, rank, details, lease, lease_expires_at)
select $1, g.item, g.user_name, g.instance, g.request_id, $2, g.rank, g.details::json,
  $3::bigint * interval '1 microsecond', clock_timestamp() + $3::bigint * interval '1 microsecond'
from unnest($4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::text[])
  as g (item, user_name, instance, request_id, rank, details)`

	// It repeats what it relies on: a cancel that was answered 200 meanwhile stays one.
	answerRequests = `
update getwork.work_requested r
set state = a.state, requested = a.assigned, assigned = a.assigned, reason = a.reason,
    completed_at = clock_timestamp(), round_id = $1, run_id = $2
from unnest($3::bigint[], $4::text[], $5::integer[], $6::text[]) as a (id, state, assigned, reason)
where r.id = a.id and r.state = 'pending'`

	// They were read and stay: from now on they alone are a reason to run at that time only.
	leaveLingering = `
update getwork.work_requested
set look_after = least(clock_timestamp() + $2::bigint * interval '1 microsecond', linger_until)
where id = any($1::bigint[]) and state = 'pending'`
)

// answers are the columns of answerRequests.
type answers struct {
	ids     []int64
	states  []string
	counts  []int32
	reasons []*string
}

func (a *answers) add(id int64, state State, count int, reason *string) {
	a.ids = append(a.ids, id)
	a.states = append(a.states, string(state))
	a.counts = append(a.counts, int32(count))
	a.reasons = append(a.reasons, reason)
}

// grants are the columns of insertWork.
type grants struct {
	items, users, instances, details []string
	requests, ranks                  []int64
}

func (g *grants) add(w waiter, items []ranked) {
	for _, it := range items {
		g.items = append(g.items, it.item)
		g.users = append(g.users, w.holder.User)
		g.instances = append(g.instances, w.holder.Instance)
		g.requests = append(g.requests, w.id)
		g.ranks = append(g.ranks, it.rank)
		g.details = append(g.details, it.details)
	}
}

// write carries out the plan: work, requests, the task's state, and one NOTIFY last.
func (r *round) write(ctx context.Context, from supply, p plan.Plan, items []ranked, all bool) error {
	var ended answers
	var granted grants
	var lingering []int64
	empty := string(AllHeld)
	if from.usable() == 0 {
		empty = string(NoMatch)
	}
	for i, a := range p.Answers {
		switch a.Outcome {
		case plan.Wait:
		case plan.Linger:
			lingering = append(lingering, a.Request)
		case plan.Assigned:
			ended.add(a.Request, Assigned, a.Count, nil)
		case plan.Partial:
			ended.add(a.Request, Partial, a.Count, nil)
		case plan.None:
			ended.add(a.Request, None, 0, &empty)
		}
		granted.add(r.waiting[i], items[a.From:a.From+a.Count])
	}
	next := int64(1) // nobody waits, so nothing was read
	switch {
	case p.Used < len(items):
		next = items[p.Used].rank
	case all: // and what can't be handed out now can't be handed out later: it was taken since the run
		next = math.MaxInt64
	case len(items) > 0:
		next = items[len(items)-1].rank + 1
	}

	var batch pgx.Batch
	batch.Queue("savepoint planned")
	wrote := expecting{batch: &batch}
	if len(granted.items) > 0 {
		wrote.queue(len(granted.items), r.e.SQL(insertWork), r.task, from.runID(), microsOf(r.state.Lease),
			granted.items, granted.users, granted.instances, granted.requests, granted.ranks, granted.details)
	}
	if len(ended.ids) > 0 {
		wrote.queue(len(ended.ids), r.e.SQL(answerRequests), r.id, from.runID(), ended.ids, ended.states, ended.counts, ended.reasons)
	}
	if len(lingering) > 0 {
		wrote.queue(len(lingering), r.e.SQL(leaveLingering), lingering, r.state.RerunAfter.micros())
	}
	statement, args := from.settle(next, p.Spent)
	wrote.queue(1, r.e.SQL(statement), append([]any{r.task}, args...)...)
	if err := wrote.send(ctx, r.tx); err != nil {
		return err
	}
	r.answered = ended.ids
	return nil
}

// expecting is a batch of writes, each of which must touch so many rows.
type expecting struct {
	batch *pgx.Batch
	rows  []int
}

func (x *expecting) queue(rows int, statement string, args ...any) {
	x.batch.Queue(statement, args...)
	x.rows = append(x.rows, rows)
}

// send executes the batch, whose last len(rows) statements have expectations; errMoved if one is not met.
func (x *expecting) send(ctx context.Context, tx pgx.Tx) error {
	results := tx.SendBatch(ctx, x.batch)
	defer results.Close()
	for range x.batch.Len() - len(x.rows) {
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf("write the round: %w", err)
		}
	}
	for _, want := range x.rows {
		tag, err := results.Exec()
		if err != nil {
			return fmt.Errorf("write the round: %w", err)
		}
		if tag.RowsAffected() != int64(want) {
			return fmt.Errorf("%w: %d rows instead of %d", errMoved, tag.RowsAffected(), want)
		}
	}
	return nil
}

// announce adds the round's one NOTIFY, the transaction's last statement: it goes out if and only if it commits.
func (r *round) announce(ctx context.Context, run int64) error {
	m := notify.Message{Node: r.e.Node, Round: &notify.Round{Task: r.task, ID: r.id, Run: run, Requests: len(r.answered)}}
	if _, err := r.tx.Exec(ctx, notify.NotifySQL, r.e.Channel, m.Encode()); err != nil {
		return fmt.Errorf("announce the round: %w", err)
	}
	return nil
}
