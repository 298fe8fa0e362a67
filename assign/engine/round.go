package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
	"getwork/notify"
)

// round is one transaction's work under the assign lock: read the waiting requests, decide, write, announce. It serves a
// run's result, a fresh shelf, an inbox, a claim, a reassignment, and a run that failed. The caller begins the transaction
// and commits.
type round struct {
	e     *Engine
	tx    pgx.Tx
	id    int64
	task  int64
	state lockedState
	began time.Time // zero: tracing is off

	matching ranking.Matching           // what the task's recheck said of the shelf's best candidates
	dropped  bool                       // some of them no longer matched
	clicks   map[assign.Holder][]*click // the clicks that this round records
	clickers []assign.Holder            // their holders, sorted
	last     func(*pg.Writes) bool      // adds what the transaction still writes, and reports whether that is all; nil: it is not

	run       int64     // the run that it ends; 0: none
	ahead     *prefetch // what was read together with the lock, for the clicks; nil: the round serves none
	waiting   []waiter
	over      []int64         // waiting requests that it cancels: what their users came in with is no good any more
	alive     map[string]bool // credentials that had not ended when it asked, under the lock
	answered  []int64         // requests that this round ended
	announced bool            // its NOTIFY is queued, or left to the announcer

	telling *notify.Telling // of a round that the announcer may announce; nil: it announces itself, or has nothing to announce

	ends  map[assign.State]int // how many waiting requests it ended, by state
	waits []time.Duration      // how long the requests that it answered had waited
	given int                  // how many items it handed out

	shelf *shelfScan // how long the shelf lasts; nil: there is none
	brief bool       // work was given for so short a time that the sweeper may have to wake for it
	freed bool       // requests linger that others could not see before: look again for what became free meanwhile
}

// waiter is a pending request, its row locked.
type waiter struct {
	id      int64
	holder  assign.Holder
	wanted  int
	waited  time.Duration    // since it was recorded
	lingers bool             // it lingers, and its time is not over
	unread  bool             // no round has left it lingering before
	groups  *[]string        // nil: needs none
	lease   *assign.Duration // for a task that has none
	click   *click           // not recorded yet; nil: the request is recorded

	credential string // what it was recorded with; empty: nothing
	validUntil *time.Time
	invalid    bool // that time is past

	ranFor int64 // the run that left it to its shelf; 0: none
	left   bool  // it did, and no round has answered from that shelf
}

const (
	// The assign locks of the task and of the tasks that it conflicts with, because a round reads what is held there. In the
	// order of ids, like everybody.
	lockAssign = `
select s.task_id
from getwork.task_state s
where s.task_id in (select $1::bigint union all select c.other_id from getwork.task_conflict c where c.task_id = $1)
order by s.task_id
for no key update`

	// A statement of its own, after the lock. A lock that had to wait returns the row as it is now, but rows joined to it as
	// they were when the statement began.
	selectState = `
select nextval('getwork.round'), s.name, s.paused, s.version, s.deleted_at is not null,
  s.failures,
  case when s.retry_at > clock_timestamp() - v.query_timeout - interval '1 minute' then s.retries else 0 end,
  coalesce(extract(epoch from clock_timestamp() - s.retry_since), 0)::float8,
  coalesce(s.shelf_run, 0), s.shelf_from, s.shelf_cut, coalesce(u.given - u.passed_over, 0),
  coalesce(u.blocked > 0 or u.candidates > s.shelf_left, false), coalesce(u.candidates > s.shelf_left, false),
  ` + shelfServes + `, ` + shelfExpired + `, ` + rankedAt + `,
  array(select c.other_id from getwork.task_conflict c where c.task_id = s.task_id),
  ` + records.SettingsColumns + `
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
left join getwork.run u on u.id = s.shelf_run
where s.task_id = $1`

	// All requests that wait now, including those that came during the query, first come first. The rows are locked: a later
	// cancel finds them answered, and a request cancelled earlier is not in the list.
	selectWaiting = `
select id, user_name, instance, wanted, coalesce(linger_until > clock_timestamp(), false), groups,
  (extract(epoch from lease) * 1000000)::bigint, look_after is null, coalesce(credential, ''), valid_until,
  coalesce(valid_until <= clock_timestamp(), false), (extract(epoch from clock_timestamp() - created_at) * 1000000)::bigint,
  coalesce(run_id, 0), run_id is not null and reason is null
from getwork.work_requested
where task_id = $1 and state = 'pending'
order by id
for update`
)

// openRound takes the assign locks of the task and of those that it conflicts with, and reads what they protect. tx must be at
// READ COMMITTED: at a higher level the round would see what there was before it waited for the lock, or fail.
func (e *Engine) openRound(ctx context.Context, tx pgx.Tx, task int64) (*round, error) {
	return e.openRoundFor(ctx, tx, task, nil)
}

// openRoundFor is openRound for a batch of clicks. It also reads what serving them needs, in the same round trip.
func (e *Engine) openRoundFor(ctx context.Context, tx pgx.Tx, task int64, batch []*click) (*round, error) {
	r := &round{e: e, tx: tx, task: task, began: e.Trace.Now()}
	for {
		locked, err := r.lock(ctx, batch)
		if err != nil {
			return nil, err
		}
		unlocked := func(other int64) bool { return !slices.Contains(locked, other) }
		if !slices.ContainsFunc(r.state.conflicts, unlocked) {
			return r, nil
		}
		// A manager added a conflict after we had read the conflicts, and before we had the lock. Take that lock, too, out of
		// order this once. If its holder waits for us, PostgreSQL ends one of the two transactions, which begins again.
	}
}

// lock takes the assign locks and reads the state, in one round trip. locked are the tasks whose locks it has. clicks: see
// openRoundFor. Keys that an earlier turn has inserted are kept: a second insert would find them, and take them for another click's.
func (r *round) lock(ctx context.Context, clicks []*click) (locked []int64, err error) {
	var batch pgx.Batch
	batch.Queue(r.e.SQL(lockAssign), r.task)
	batch.Queue(r.e.SQL(selectState), r.task)
	if len(clicks) > 0 {
		var written *keys // by an earlier turn of openRoundFor
		if r.ahead != nil {
			written = r.ahead.keys
		}
		r.ahead = &prefetch{keys: written}
		r.ahead.queue(r, &batch, clicks)
	}
	results := r.tx.SendBatch(ctx, &batch)
	defer results.Close()
	rows, err := results.Query()
	if err == nil {
		locked, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return nil, fmt.Errorf("take the assign lock: %w", err)
	}
	r.state = lockedState{}
	s := &r.state
	var retrying float64
	into := []any{&r.id, &s.Name, &s.Paused, &s.version, &s.deleted, &s.failures, &s.retries, &retrying,
		&s.shelfRun, &s.shelfFrom, &s.shelfCut, &s.shelfUsable, &s.shelfTaken, &s.shelfUsed, &s.fresh, &s.stale, &s.rankedAt, &s.conflicts}
	if err := results.QueryRow().Scan(append(into, records.IntoSettings(&s.Settings)...)...); err != nil {
		return nil, fmt.Errorf("read the task's state: %w", err)
	}
	s.stale = s.stale && s.fresh
	s.retrying = time.Duration(retrying * float64(time.Second))
	if r.ahead != nil {
		err = r.ahead.read(results)
	}
	return locked, err
}

// readWaiting locks and reads the waiting requests, and adds the clicks that this round records.
func (r *round) readWaiting(ctx context.Context) error {
	if r.ahead != nil && r.ahead.waiting != nil {
		waiting := r.ahead.waiting
		r.ahead.waiting = nil
		for _, p := range r.ahead.proofs {
			r.lives(p.credential)
		}
		return r.wait(waiting, r.ahead.ids)
	}
	var waiting []waiter
	var batch pgx.Batch
	var ids []int64
	batch.Queue(r.e.SQL(selectWaiting), r.task).Query(func(rows pgx.Rows) (err error) {
		waiting, err = pgx.CollectRows(rows, scanWaiter)
		return err
	})
	if len(r.clickers) > 0 {
		batch.Queue(r.e.SQL(selectIDs), len(r.clickers)).Query(func(rows pgx.Rows) (err error) {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	}
	if err := r.tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("read waiting requests: %w", err)
	}
	return r.wait(waiting, ids)
}

// wait takes the waiting requests that were read, and the clicks that this round records.
func (r *round) wait(waiting []waiter, ids []int64) (err error) {
	if r.waiting, err = r.withInline(waiting, ids); err != nil {
		return err
	}
	r.over = nil
	r.setAside(func(w waiter) bool { return w.invalid })
	return nil
}

func scanWaiter(row pgx.CollectableRow) (w waiter, err error) {
	var waited int64
	err = row.Scan(&w.id, &w.holder.User, &w.holder.Instance, &w.wanted, &w.lingers, &w.groups, &w.lease, &w.unread,
		&w.credential, &w.validUntil, &w.invalid, &waited, &w.ranFor, &w.left)
	w.waited = time.Duration(waited) * time.Microsecond
	return w, err
}

// errMoved says that a row was changed between the round's read and its write, although everybody who changes such rows holds
// the same locks. Plan and write are repeated.
var errMoved = pg.ErrMoved

// attempts is how often a round plans on the result at hand. A second time is needed only if somebody writes without the
// locks.
const attempts = 5

// serve reads the waiting requests, hands out to them what the supply has, and writes that. The caller commits, unless r.last
// let COMMIT travel with the writes. If a constraint refuses the plan, serve goes back to the savepoint and plans again: that
// keeps the locks and a run's result, without which the query would have to run again.
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

// again reports whether a constraint refused the plan, or a row was not as it had been read.
func again(err error) bool {
	var pgErr *pgconn.PgError
	return errors.Is(err, errMoved) || errors.As(err, &pgErr) && pgErr.Code == "23505"
}

// assign plans once, and writes the plan.
func (r *round) assign(ctx context.Context, from supply) error {
	requests, err := r.requests(ctx, r.waiting)
	if err != nil {
		return err
	}
	n := 0
	run := from.runID()
	for i, w := range r.waiting {
		n += w.wanted
		requests[i].Ran = run != nil && w.ranFor != 0 && w.ranFor == *run || r.run != 0 && w.left
	}
	for {
		offers, all, err := from.take(ctx, r, n)
		if err != nil {
			return fmt.Errorf("read what can be handed out: %w", err)
		}
		items := make([]plan.Item, len(offers))
		for i := range offers {
			items[i] = offers[i].Item
		}
		p := plan.Assign(r.rules(), requests, plan.Supply{Source: from.source(), Items: items, Cut: from.cut(), More: !all,
			Usable: from.usable(), Used: from.used(), Stale: from.stale()})
		if p.Short { // rules kept a request from the best items: read on
			n = max(4*n, 100)
			continue
		}
		if dropped, err := r.dropEnded(ctx, p); err != nil {
			return err
		} else if dropped {
			return r.assign(ctx, from)
		}
		r.e.Steps(ctx, StepRead)
		return r.write(ctx, from, p, offers, all)
	}
}

func (r *round) rules() plan.Rules {
	rules := plan.Rules{Groups: r.state.Groups}
	if r.state.MaxOpen != nil {
		rules.MaxOpen = *r.state.MaxOpen
	}
	return rules
}

const countOpen = `
select user_name, count(*)
from getwork.work
where task_id = $1 and user_name = any($2::text[]) and state = 'held'
group by user_name`

// requests returns the waiters as the plan sees them.
func (r *round) requests(ctx context.Context, waiting []waiter) ([]plan.Request, error) {
	requests := make([]plan.Request, len(waiting))
	users := make([]string, len(waiting))
	for i, w := range waiting {
		users[i] = w.holder.User
		requests[i] = plan.Request{ID: w.id, Holder: plan.Holder(w.holder), Wanted: w.wanted, Lingers: w.lingers, Anything: w.groups == nil}
		if w.groups != nil {
			requests[i].Groups = *w.groups
		}
	}
	if r.state.MaxOpen == nil || len(waiting) == 0 {
		return requests, nil
	}
	rows, err := r.tx.Query(ctx, r.e.SQL(countOpen), r.task, users)
	if err != nil {
		return nil, fmt.Errorf("count what is held: %w", err)
	}
	open := map[string]int{}
	var user string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&user, &n}, func() error { open[user] = n; return nil }); err != nil {
		return nil, fmt.Errorf("count what is held: %w", err)
	}
	for i := range requests {
		requests[i].Open = open[requests[i].Holder.User]
	}
	return requests, nil
}
