package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
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

	looks bool // it takes no lock, and must not write: see [Engine.Could]

	waited time.Duration // for the first answer: the assign lock, and what was read with it

	matching ranking.Matching           // what the task's recheck said of the shelf's best candidates
	dropped  bool                       // some of them no longer matched
	clicks   map[assign.Holder][]*click // the clicks that this round records
	clickers []assign.Holder            // their holders, sorted
	last     func() bool                // reports whether the transaction writes nothing else; nil: it does

	run       int64           // the run that it ends; 0: none
	ahead     *prefetch       // what was read together with the lock, for the clicks; nil: the round serves none
	clicked   []waiter        // the clicks that it records
	line                      // who waits, in the order of their ids, and last the clicks, if it has read all who may come before them
	over      []int64         // waiting requests that it cancels: what their users came in with is no good any more
	alive     map[string]bool // credentials that had not ended when it asked, under the lock
	answered  []int64         // requests that this round ended
	floor     int64           // if it plans again: what it has locked before. See next.go
	mine      []int64         // likewise, of requests over several tasks
	passed    []int64         // requests over several tasks that it has passed on
	wakes     []int64         // the tasks that are to be asked next for them
	announced bool            // its NOTIFY is queued, or left to the announcer

	quotas map[string]*quota // of the users whom a limit over all tasks binds

	needy  bool                // what it plans with may need something: it reads what people can
	skills map[string][]string // of the users whom it has read
	may    []bool              // by class, whether somebody who waits may have its items; see needs.go
	read   []bool              // by class, whether all of them were read that can be handed out

	telling *notify.Telling // of a round that the announcer may announce; nil: it announces itself, or has nothing to announce

	ends  map[assign.State]int // how many waiting requests it ended, by state
	waits []time.Duration      // how long the requests that it answered had waited
	given int                  // how many items it handed out

	renewIn *float64 // in how many seconds the shelf is to be renewed; nil: never
	brief   bool     // work was given for so short a time that the sweep may have to wake for it
	freed   bool     // requests linger that others could not see before: look again for what became free meanwhile
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
	nexts       bool       // requests over several tasks wait
	fresh       bool       // the shelf can be handed out
	stale       bool       // although it has expired
	rankedAt    *time.Time // of the shelf's run
	needs       classes    // of what is on the shelf or in the inbox
	shelfFroms  []int64    // by class, likewise as shelfFrom; empty: that is all

	conflicts []int64 // tasks that this one conflicts with
	limited   bool    // there are limits over all tasks

	away map[string]*time.Time // who is away, and until when; nil: until somebody ends it
}

// serves reports whether a round can hand something out without a run.
func (s *lockedState) serves() bool { return (s.fresh || s.Inbox()) && !s.Paused && !s.deleted }

// counts reports whether what somebody holds bounds what they get.
func (s *lockedState) counts() bool { return s.limited || s.MaxOpen != nil }

// openRound takes the assign locks of the task and of those that it conflicts with, and reads what they protect. tx must be at
// READ COMMITTED: at a higher level the round would see what there was before it waited for the lock, or fail.
func (e *Engine) openRound(ctx context.Context, tx pgx.Tx, task int64) (*round, error) {
	return e.openRoundFor(ctx, tx, task, nil)
}

// openRoundFor is openRound for a batch of clicks. It also reads what serving them needs, in the same round trip.
func (e *Engine) openRoundFor(ctx context.Context, tx pgx.Tx, task int64, batch []*click) (*round, error) {
	r := &round{e: e, tx: tx, task: task, began: e.Trace.Now()}
	began := time.Now()
	for {
		locked, err := r.lock(ctx, batch)
		r.waited = time.Since(began)
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

// LockTask takes the assign locks as a round does, for a manager's act.
func (e *Engine) LockTask(ctx context.Context, tx pgx.Tx, task int64) error {
	_, err := e.openRound(ctx, tx, task)
	return err
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

	lockNothing = `select s.task_id from getwork.task_state s where s.task_id = $1`
)

// A statement of its own, after the lock. A lock that had to wait returns the row as it is now, but rows joined to it as
// they were when the statement began.
var selectState = `
select nextval('getwork.round'), s.name, s.paused, s.version, s.deleted_at is not null,
  s.failures,
  case when s.retry_at > clock_timestamp() - v.query_timeout - interval '1 minute' then s.retries else 0 end,
  coalesce(extract(epoch from clock_timestamp() - s.retry_since), 0)::float8,
  coalesce(s.shelf_run, 0), s.shelf_from, s.shelf_cut, coalesce(u.given - u.passed_over, 0),
  coalesce(u.blocked > 0 or u.candidates > s.shelf_left, false), coalesce(u.candidates > s.shelf_left, false),
  exists (select from getwork.work_requested r where r.task_id = 0 and r.state = 'pending'),
  ` + shelfServes + `, ` + shelfExpired + `, ` + records.RankedAt + `, coalesce(s.needs, u.needs), s.shelf_froms,
  array(select c.other_id from getwork.task_conflict c where c.task_id = s.task_id),
  exists (select from ` + records.LimitsInForce + `), away.users, away.until,
  ` + records.SettingsColumns + `
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
left join getwork.run u on u.id = s.shelf_run
cross join (select array_agg(a.user_name) as users, array_agg(a.until_at) as until from getwork.absence a where ` + records.InForce + `) away
where s.task_id = $1`

// lock takes the assign locks and reads the state, in one round trip. locked are the tasks whose locks it has. clicks: see
// openRoundFor.
func (r *round) lock(ctx context.Context, clicks []*click) (locked []int64, err error) {
	var batch pgx.Batch
	if r.looks {
		batch.Queue(r.e.SQL(lockNothing), r.task)
	} else {
		batch.Queue(r.e.SQL(lockAssign), r.task)
	}
	batch.Queue(r.e.SQL(selectState), r.task)
	if len(clicks) > 0 {
		r.ahead = &prefetch{}
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
	var away []string
	var until []*time.Time
	into := []any{&r.id, &s.Name, &s.Paused, &s.version, &s.deleted, &s.failures, &s.retries, &retrying,
		&s.shelfRun, &s.shelfFrom, &s.shelfCut, &s.shelfUsable, &s.shelfTaken, &s.shelfUsed, &s.nexts, &s.fresh, &s.stale, &s.rankedAt, &s.needs, &s.shelfFroms, &s.conflicts, &s.limited, &away, &until}
	if err := results.QueryRow().Scan(append(into, records.IntoSettings(&s.Settings)...)...); err != nil {
		return nil, fmt.Errorf("read the task's state: %w", err)
	}
	s.stale = s.stale && s.fresh
	if s.Once { // it conflicts with itself: whoever holds or completed an item under it does not get that
		s.conflicts = append(s.conflicts, r.task)
	}
	s.absent(away, until)
	s.retrying = time.Duration(retrying * float64(time.Second))
	if r.ahead != nil {
		err = r.ahead.read(results)
	}
	return locked, err
}

// absent takes the absences that are in force. Of several of a user's the one that lasts longest counts.
func (s *lockedState) absent(users []string, until []*time.Time) {
	for i, user := range users {
		if s.away == nil {
			s.away = make(map[string]*time.Time, len(users))
		}
		if longest, also := s.away[user]; !also || longest != nil && (until[i] == nil || until[i].After(*longest)) {
			s.away[user] = until[i]
		}
	}
}

// errMoved says that a row was changed between the round's read and its write, although everybody who changes such rows holds
// the same locks. Plan and write are repeated.
var errMoved = pg.ErrMoved

// errBeginAgain says that a round that records clicks was refused by a constraint.
var errBeginAgain = errors.New("hand out to clicks")

// attempts is how often a round plans on the result at hand. A second time is needed only if somebody writes without the
// locks, or where a limit over all tasks binds its users: each other task's round can take a seat before it.
const attempts = 20

// serve reads the waiting requests, hands out to them what the supply has, and writes that. The caller commits, unless r.last
// let COMMIT travel with the writes. If a constraint refuses the plan, serve goes back to the savepoint and plans again: that
// keeps the locks and a run's result, without which the query would have to run again. A round that records clicks has no result to
// keep, and sets no savepoint: it would cost each click a second transaction id, and a multixact on the assign lock's row. It returns
// errBeginAgain, and its transaction begins again.
func (r *round) serve(ctx context.Context, from supply) error {
	var err error
	for range attempts {
		// A result that was cut has further items, for which the next run is: then nobody gets nothing for good.
		if err = r.readWaiting(ctx, r.run != 0 && from.cut()); err != nil {
			return err
		}
		if err = r.assign(ctx, from); err == nil {
			return nil
		}
		if !again(err) {
			return err
		}
		level := slog.LevelWarn
		if seatTaken(err) {
			level = slog.LevelDebug // by another task's round: nobody is at fault
		}
		r.e.Log.Log(ctx, level, "round planned again", "task", r.state.Name, "round", r.id, "cause", err)
		if r.clicks != nil {
			return fmt.Errorf("%w: %w", errBeginAgain, err)
		}
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

// assign plans, and writes the plan. It reads on, more items or more of those who linger, until whoever it has not read would get
// nothing.
func (r *round) assign(ctx context.Context, from supply) error {
	var offers []offer
	var all bool
	n, read := 0, -1
	for {
		more, err := r.readClasses(ctx, from)
		if err != nil {
			return err
		}
		requests, err := r.requests(ctx, r.waiting)
		if err != nil {
			return err
		}
		sum := 0
		for _, w := range r.waiting {
			sum += w.wanted
		}
		if n = max(n, sum); !r.complete { // ask for the clicks, too, and for one item at least, to see whether there is any
			for _, w := range r.clicked {
				sum += w.wanted
			}
			n = max(n, sum, 1)
		}
		if n > read || more {
			if offers, all, err = from.take(ctx, r, n); err != nil {
				return fmt.Errorf("read what can be handed out: %w", err)
			}
			read = n
		}
		items := make([]plan.Item, len(offers))
		for i := range offers {
			items[i] = offers[i].Item
			items[i].Once = items[i].Once || r.state.Once
		}
		p := plan.Assign(requests, plan.Supply{Source: from.source(), Items: items, Cut: from.cut(), More: !all,
			Usable: from.usable(), Used: from.used(), Stale: from.stale()})
		switch {
		case p.Short, !r.complete && !p.Spent && !p.Left && !all: // rules kept a request from the best items, or they are all gone: read on
			n = max(4*n, 100)
			continue
		case !r.complete:
			if err := r.readOn(ctx, p.Left && !p.Spent); err != nil {
				return err
			}
			continue
		}
		if dropped, err := r.dropEnded(ctx, p); err != nil {
			return err
		} else if dropped {
			if r.next != nobody { // what those would have got is for others, too, whom it has not read
				if err := r.readWaiting(ctx, true); err != nil {
					return err
				}
			}
			return r.assign(ctx, from)
		}
		r.e.Steps(ctx, StepRead)
		return r.write(ctx, from, p, offers, all)
	}
}

// requests returns the waiters as the plan sees them, with their room.
func (r *round) requests(ctx context.Context, waiting []waiter) ([]plan.Request, error) {
	requests := make([]plan.Request, len(waiting))
	if err := r.readSkills(ctx, waiting); err != nil {
		return nil, err
	}
	for i, w := range waiting {
		requests[i] = plan.Request{ID: w.id, Holder: plan.Holder(w.holder), Wanted: w.wanted, Lingers: w.lingers, Room: plan.NoLimit, Anything: w.groups == nil}
		if w.groups != nil {
			requests[i].Groups, requests[i].Skills = *w.groups, r.skills[w.holder.User]
		}
		requests[i].Only(r.state.Groups)
		if _, away := r.state.away[w.holder.User]; away {
			requests[i].Limit(0, plan.Away)
		}
		if w.next != nil || w.click != nil && w.click.targets != nil {
			requests[i].Elsewhere, requests[i].Wanted = w.next == nil || !w.next.first, min(w.wanted, r.state.MaxRequest)
		}
	}
	if len(waiting) == 0 || !r.state.counts() {
		return requests, nil
	}
	return requests, r.limit(ctx, waiting, requests)
}

// reasons maps a plan's reasons to those of the API.
var reasons = map[plan.Reason]assign.Reason{plan.NoMatch: assign.NoMatch, plan.AllHeld: assign.AllHeld, plan.Barred: assign.Rules, plan.AtLimit: assign.AtLimit, plan.Away: assign.Away}

// answers holds the columns of answerRequests.
type answers struct {
	ids     []int64
	states  []string
	counts  []int32
	reasons []*string
}

func (a *answers) add(id int64, state assign.State, count int, reason assign.Reason) {
	a.ids = append(a.ids, id)
	a.states = append(a.states, string(state))
	a.counts = append(a.counts, int32(count))
	var why *string
	if reason != "" {
		why = (*string)(&reason)
	}
	a.reasons = append(a.reasons, why)
}

// grants holds the columns of insertWork.
type grants struct {
	items, users, instances, details []string
	slots, attempts                  []int32
	exclusives                       []*string
	requests                         []int64
	ranks, leases                    []*int64
	deadlines                        []*time.Time // as long as its last row that has one; see withText
	again                            []bool       // likewise
	needs                            []*string    // likewise, arrays as PostgreSQL writes them
	seats                            []*int32     // likewise; nil: no limit binds the user
	froms                            []*int64     // likewise
}

// add gives a place of an item to a waiter, who takes a seat for it if a limit binds them; lease is the task's.
func (g *grants) add(w waiter, o *offer, slot int, lease *assign.Duration, q *quota) {
	if lease == nil {
		lease = w.lease
	}
	var rank *int64
	if o.cand.Rank > 0 {
		rank = &o.cand.Rank
	}
	if o.cand.Deadline != nil {
		for len(g.deadlines) < len(g.items) {
			g.deadlines = append(g.deadlines, nil)
		}
		g.deadlines = append(g.deadlines, o.cand.Deadline)
	}
	if o.again {
		for len(g.again) < len(g.items) {
			g.again = append(g.again, false)
		}
		g.again = append(g.again, true)
	}
	if o.from != nil {
		for len(g.froms) < len(g.items) {
			g.froms = append(g.froms, nil)
		}
		g.froms = append(g.froms, o.from)
	}
	if len(o.Needs) > 0 {
		g.needs = withText(g.needs, len(g.items), arrayText(o.Needs))
	}
	if q != nil {
		for len(g.seats) < len(g.items) {
			g.seats = append(g.seats, nil)
		}
		g.seats = append(g.seats, q.take())
	}
	g.items = append(g.items, o.cand.Item)
	g.slots = append(g.slots, int32(slot))
	g.attempts = append(g.attempts, int32(o.attempt))
	g.exclusives = append(g.exclusives, o.cand.Exclusive)
	g.users = append(g.users, w.holder.User)
	g.instances = append(g.instances, w.holder.Instance)
	g.requests = append(g.requests, w.id)
	g.ranks = append(g.ranks, rank)
	g.details = append(g.details, o.cand.Details)
	g.leases = append(g.leases, microseconds(lease))
}

// microseconds converts a duration that may be missing for use in an array. An array of durations is not known in every
// protocol mode.
func microseconds(d *assign.Duration) *int64 {
	if d == nil {
		return nil
	}
	n := d.Microseconds()
	return &n
}

// The unique indexes work_held_slot, work_holder, work_held_exclusive and work_seat refuse what a plan must not do. The lease begins
// at clock_timestamp(): now() has stood still since the lock.
const formatInsertWork = `
insert into getwork.work (task_id, item, slot, exclusive, user_name, instance, request_id, run_id, rank, details, attempt,
  deadline, again, lease, lease_expires_at, warn_at%[1]s)
select $1, g.item, g.slot, g.exclusive, g.user_name, g.instance, nullif(g.request_id, 0), $2, g.rank, g.details::json, g.attempt,
  g.deadline, g.again, g.lease * interval '1 microsecond', clock_timestamp() + g.lease * interval '1 microsecond',
  clock_timestamp() + g.lease * 0.8::float8 * interval '1 microsecond'%[2]s
from unnest($3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::text[], $11::bigint[],
  $12::integer[], $13::timestamptz[], $14::boolean[]%[3]s (item, slot, exclusive, user_name, instance, request_id, rank, details, lease, attempt, deadline, again%[4]s`

var (
	insertWork = fmt.Sprintf(formatInsertWork, "", "", ") as g", ")")

	// Of rounds that give seats. Two rounds of different tasks may give seats to the same users; in different orders they would deadlock.
	insertSeated = fmt.Sprintf(formatInsertWork, ", seat", ", g.seat", ", $15::integer[]) with ordinality as g", ", seat, n)\norder by g.user_name collate \"C\", g.seat, g.n")

	// Of rounds that give what has gone on from other work; seats are null where no limit binds.
	insertFrom = fmt.Sprintf(formatInsertWork, ", seat, from_work", ", g.seat, g.from_work", ", $15::integer[], $16::bigint[]) with ordinality as g",
		", seat, from_work, n)\norder by g.user_name collate \"C\", g.seat, g.n")
)

// withNeeds is insertWork or insertSeated of items that need something; the parameter has what.
func withNeeds(statement string, parameter int) string {
	return strings.NewReplacer(
		"lease_expires_at, warn_at", "lease_expires_at, warn_at, needs",
		"0.8::float8 * interval '1 microsecond'", "0.8::float8 * interval '1 microsecond', g.needs::text[]",
		"$14::boolean[]", fmt.Sprintf("$14::boolean[], $%d::text[]", parameter),
		"deadline, again)", "deadline, again, needs)", "deadline, again, seat", "deadline, again, needs, seat").Replace(statement)
}

// For rounds that answer their clicks directly.
const returningGiven = `
returning id, item, slot, assigned_at, lease_expires_at`

// insert queues the work rows. given, if set, gets each row as it was written.
func (g *grants) insert(x *pg.Writes, r *round, run *int64, given func(i int, w assign.Work)) {
	if len(g.items) == 0 {
		return
	}
	statement, args := insertWork, []any{r.task, run, g.items, g.slots, g.exclusives, g.users, g.instances, g.requests, g.ranks, g.details,
		g.leases, g.attempts, g.deadlines, g.again}
	switch {
	case g.froms != nil:
		statement, args = insertFrom, append(args, g.seats, g.froms)
	case g.seats != nil:
		statement, args = insertSeated, append(args, g.seats)
	}
	if g.needs != nil {
		statement, args = withNeeds(statement, len(args)+1), append(args, g.needs)
	}
	var read func(pgx.CollectableRow) error
	if given != nil {
		statement += returningGiven
		read = g.reader(r, given)
	}
	x.Read(len(g.items), read, r.e.SQL(statement), args...)
	r.brief = r.brief || slices.ContainsFunc(g.leases, func(l *int64) bool { return l != nil && r.e.oversleeps(assign.Microseconds(*l)) })
}

// reader returns a function that makes work from the returned row and from what was to be written.
func (g *grants) reader(r *round, given func(i int, w assign.Work)) func(pgx.CollectableRow) error {
	type place struct {
		item string
		slot int32
	}
	at := make(map[place]int, len(g.items))
	for i := range g.items {
		at[place{g.items[i], g.slots[i]}] = i
	}
	return func(row pgx.CollectableRow) error {
		var p place
		w := assign.Work{Task: r.state.Name, TaskID: r.task, State: "held"}
		if err := row.Scan(&w.ID, &p.item, &p.slot, &w.AssignedAt, &w.LeaseExpiresAt); err != nil {
			return err
		}
		i := at[p]
		w.Item, w.Slot = p.item, int(p.slot)
		w.User, w.Instance, w.Attempt = g.users[i], g.instances[i], int(g.attempts[i])
		if i < len(g.deadlines) {
			w.Deadline = assign.UTC(g.deadlines[i])
		}
		w.Again = i < len(g.again) && g.again[i]
		if i < len(g.froms) && g.froms[i] != nil {
			w.From = *g.froms[i]
		}
		w.SetDetails(json.RawMessage(g.details[i]))
		if l := g.leases[i]; l != nil {
			lease := assign.Microseconds(*l)
			w.Lease = &lease
		}
		w.AssignedAt, w.LeaseExpiresAt = w.AssignedAt.UTC(), assign.UTC(w.LeaseExpiresAt)
		given(i, w)
		return nil
	}
}

const (
	// It repeats the state that it relies on, so a cancel that was confirmed meanwhile stays one.
	answerRequests = `
update getwork.work_requested r
set state = a.state, requested = a.assigned, assigned = a.assigned, reason = a.reason,
    completed_at = clock_timestamp(), round_id = $1, run_id = $2,
    ranked_at = case when a.assigned > 0 then $7::timestamptz end, stale = a.assigned > 0 and $8
from unnest($3::bigint[], $4::text[], $5::integer[], $6::text[]) as a (id, state, assigned, reason)
where r.id = a.id and r.state = 'pending'`

	noteUsed = `update getwork.task_state set used_at = clock_timestamp() where task_id = $1`

	// These requests were read and go on lingering. From now on they alone are a reason to run only at their look_after. A
	// request that was left so a moment ago is not written again: a round for each pushed item would leave hundreds of agents
	// lingering.
	leaveLingering = `
update getwork.work_requested r
set look_after = least(clock_timestamp() + $3::bigint * interval '1 microsecond', r.linger_until, $4), reason = a.reason
from unnest($1::bigint[], $2::text[]) as a (id, reason)
where r.id = a.id and r.state = 'pending'
  and (r.look_after is null or r.reason is distinct from a.reason
    or r.look_after < least(clock_timestamp() + $3::bigint / 2 * interval '1 microsecond', r.linger_until)
    or r.look_after > $4::timestamptz)`

	// Those who linger and were not read are put off with the others, those of them for whom leaveLingering would do so. Otherwise each
	// would start a run at a time of its own. Whoever is locked is left out, because the rows are not in the order of the line; and so
	// is who waits for a run ($4). The second bound is for the planner: see mustRead.
	putOffOthers = `
with soon as materialized (
  select r.id
  from getwork.work_requested r
  where r.id = any (array(
      select q.id from getwork.work_requested q
      where q.task_id = $1 and q.state = 'pending' and q.look_after > '-infinity'
        and q.look_after < (select clock_timestamp() + $2::bigint / 2 * interval '1 microsecond')
      union all
      select q.id from getwork.work_requested q
      where q.task_id = $1 and q.state = 'pending' and q.look_after > (select $3::timestamptz) and q.look_after <= 'infinity'))
    and r.id <> all ($4::bigint[]) and r.state = 'pending' and r.linger_until > clock_timestamp()
    and (r.look_after < r.linger_until or r.look_after > $3::timestamptz)
  for update skip locked
)
update getwork.work_requested r
set look_after = least(clock_timestamp() + $2::bigint * interval '1 microsecond', r.linger_until, $3)
from soon s
where r.id = s.id and r.state = 'pending'`

	// These requests need a run now. Either others have taken all that a cut result had, and the next run has more ($2). Or a rule keeps
	// them from what is left on the shelf, which serves others meanwhile. In the second case, those that a round has left lingering
	// keep their look_after: otherwise there would be a run each time something comes back to the shelf. A back-off ends first.
	leaveForRun = `
update getwork.work_requested r
set look_after = case when $2 then clock_timestamp() else greatest(coalesce(r.look_after, clock_timestamp()), s.failed_until, s.retry_at) end
from getwork.task_state s
where r.id = any($1::bigint[]) and r.state = 'pending' and s.task_id = $3`
)

// answerBoth is answerRequests if some are over several tasks: what they get makes them requests of the round's task, $9.
var answerBoth = strings.Replace(answerRequests, "set state",
	"set task_id = case when a.assigned > 0 then $9 else r.task_id end, error = null, state", 1)

// write carries out the plan: work, requests, the task's state, and one NOTIFY last.
func (r *round) write(ctx context.Context, from supply, p plan.Plan, offers []offer, all bool) error {
	var ended, lingering answers
	var served inlineRequests // clicks, which are written in their final state
	var granted grants
	var forRun []int64
	var passing passing
	served0, turns := false, false // requests over several tasks; clicks, likewise
	wait := []int64{}
	r.answered, r.ends, r.waits = nil, map[assign.State]int{}, nil
	end := func(i int, a plan.Answer, state assign.State, reason assign.Reason) {
		r.answered = append(r.answered, a.Request)
		if k := r.waiting[i].click; k != nil {
			served.add(k, state, len(a.Grants), reason, r.state.Lease)
		} else {
			ended.add(a.Request, state, len(a.Grants), reason)
			r.ends[state]++
			r.waits = append(r.waits, r.waiting[i].waited)
		}
	}
	for _, id := range r.over {
		r.answered = append(r.answered, id)
		ended.add(id, assign.Cancelled, 0, "")
		r.ends[assign.Cancelled]++
	}
	gone := make([]bool, len(offers))
	after := settlement{spent: p.Spent}
	due := false
	for i, a := range p.Answers {
		w := &r.waiting[i]
		if r.passes(&passing, w, a) {
			after.used = after.used || w.next != nil && w.next.first
			continue
		}
		served0 = served0 || w.next != nil && len(a.Grants) > 0
		turns = turns || w.click != nil && w.click.targets != nil
		if a.Outcome == plan.Assigned && len(a.Grants) < w.wanted {
			a.Outcome = plan.Partial // more than one request for this task may ask for
		}
		due = due || w.due
		after.used = after.used || a.Outcome != plan.Linger || r.waiting[i].unread
		if k := r.waiting[i].click; k != nil && (a.Outcome == plan.Wait || a.Outcome == plan.Linger) {
			served.add(k, assign.Pending, 0, "", r.state.Lease)
		}
		switch a.Outcome {
		case plan.Wait:
			wait = append(wait, a.Request)
			if from.source() == plan.Result || !p.Spent && r.run == 0 {
				forRun = append(forRun, a.Request)
			}
		case plan.Linger:
			lingering.add(a.Request, assign.Pending, 0, reasons[a.Reason])
			r.freed = r.freed || r.waiting[i].unread || r.run != 0
		case plan.Assigned:
			end(i, a, assign.Assigned, "")
		case plan.Partial:
			end(i, a, assign.Partial, reasons[a.Reason])
		case plan.None:
			end(i, a, assign.None, reasons[a.Reason])
		}
		for _, g := range a.Grants {
			granted.add(r.waiting[i], &offers[g.Item], g.Slot, r.state.Lease, r.quotas[r.waiting[i].holder.User])
			if offers[g.Item].Slots == 1 {
				gone[g.Item] = true
				after.gone++
			}
		}
	}
	var wrote pg.Writes
	if r.clicks == nil {
		wrote.Queue(pg.AnyNumber, "savepoint planned")
	}
	served.insert(&wrote, r, from)
	var given func(int, assign.Work)
	if len(served.byID) > 0 {
		given = func(i int, w assign.Work) { served.given(&granted, i, w) }
	}
	granted.insert(&wrote, r, from.runID(), given)
	r.given = len(granted.items)
	if len(ended.ids) > 0 {
		statement, args := answerRequests, []any{r.id, from.runID(), ended.ids, ended.states, ended.counts, ended.reasons, from.rankedAt(), from.stale()}
		if served0 {
			statement, args = answerBoth, append(args, r.task)
		}
		wrote.Queue(len(ended.ids), r.e.SQL(statement), args...)
	}
	passing.write(&wrote, r, r.run, "")
	if (served0 || turns) && from.source() == plan.Inbox { // equal tasks take turns
		wrote.Queue(1, r.e.SQL(noteUsed), r.task)
	}
	if len(lingering.ids) > 0 {
		wrote.Queue(pg.AnyNumber, r.e.SQL(leaveLingering), lingering.ids, lingering.reasons, r.state.RerunAfter, nextUntil(offers))
	}
	if until := nextUntil(offers); r.next != nobody && !p.Spent && (r.run != 0 || due || until != nil) {
		wrote.Queue(pg.AnyNumber, r.e.SQL(putOffOthers), r.task, r.state.RerunAfter, until, wait)
		r.freed = r.freed || r.run != 0
	}
	if len(forRun) > 0 {
		wrote.Queue(len(forRun), r.e.SQL(leaveForRun), forRun, from.source() == plan.Result, r.task)
	}
	after.next, after.handed = nextRank(offers, gone, all), granted.items
	if r.may != nil && from.source() == plan.Shelf {
		after.next, after.froms = r.nextRanks(offers, gone)
	} else if r.may != nil {
		after.next = 0
	}
	statement, args := from.settle(after)
	renewal := func(row pgx.CollectableRow) error {
		return row.Scan(&r.renewIn)
	}
	wrote.Read(pg.AnyNumber, renewal, r.e.SQL(statement), append([]any{r.task}, args...)...)
	last := r.last != nil && r.last()
	r.queueAnnouncement(&wrote, r.run == 0 && len(ended.ids)+len(passing.ids) == 0)
	send := wrote.Send
	if last {
		send = wrote.SendLast
	}
	if err := send(ctx, r.tx); err != nil {
		return fmt.Errorf("write the round: %w", err)
	}
	return nil
}

// nextUntil returns when the first offer is available again to a user who has put it off; nil: never.
func nextUntil(offers []offer) (next *time.Time) {
	for _, o := range offers {
		if o.until != nil && (next == nil || o.until.Before(*next)) {
			next = o.until
		}
	}
	return next
}

// nextRank returns the rank of the first item that can still be handed out later. Items with several places stay, because a
// place that becomes free can be given again.
func nextRank(offers []offer, gone []bool, all bool) int64 {
	for i := range offers {
		if !gone[i] {
			return offers[i].cand.Rank
		}
	}
	switch {
	case all: // items that can't be handed out now were taken since the run, and can't be later either
		return math.MaxInt64
	case len(offers) > 0:
		return offers[len(offers)-1].cand.Rank + 1
	}
	return 1 // no request waits, so nothing was read
}

// commit announces the round, unless that is done, and commits it. run is the run that the round ends; 0: none. If the connection
// is lost during the commit, nobody knows whether the round counts: the serve loop reads it from the tables.
func (e *Engine) commit(ctx context.Context, r *round, run int64) error {
	if !r.announced {
		if err := r.announce(ctx, run); err != nil {
			return err
		}
	}
	e.Steps(ctx, StepWritten)
	if err := r.tx.Commit(ctx); err != nil {
		r.telling.End(false)
		return fmt.Errorf("commit the round: %w", err)
	}
	e.after(r)
	e.Steps(ctx, StepCommitted)
	return nil
}

// announcement returns the round's one NOTIFY.
func (r *round) announcement(run int64) notify.Message {
	m := notify.Message{Node: r.e.Node, Round: &notify.Round{Task: r.task, ID: r.id, Run: run, Requests: len(r.answered)}}
	if len(r.passed) > 0 {
		m.Changes = []notify.Change{{Requests: r.passed}}
	}
	return m
}

// announce sends the announcement of a round that was not written by a plan.
func (r *round) announce(ctx context.Context, run int64) error {
	if _, err := r.tx.Exec(ctx, notify.NotifySQL, r.e.Channel, r.announcement(run).Encode()); err != nil {
		return fmt.Errorf("announce the round: %w", err)
	}
	return nil
}

// queueAnnouncement adds the round's one NOTIFY as the last statement, so that it is sent if and only if the transaction
// commits. quick: the round answers only the clicks that started it, whose callers learn the result without it. If such rounds
// are frequent, the announcer announces them together.
func (r *round) queueAnnouncement(wrote *pg.Writes, quick bool) {
	r.announced = true
	r.telling.End(false) // left from a plan that was given up
	r.telling = nil
	payload := ""
	switch {
	case !quick || r.e.announcesAtOnce():
		payload = r.announcement(r.run).Encode()
	case len(r.answered) > 0:
		r.telling = r.e.Announce.Tell(r.announcement(r.run), notify.Change{Task: r.task, Rounds: []int64{r.id}})
		payload = r.telling.Payload
	}
	if payload != "" {
		wrote.Queue(pg.AnyNumber, notify.NotifySQL, r.e.Channel, payload)
	}
}

// tellEvery is the least time between the last NOTIFY, of whatever node and task, and one of a round that answers only the clicks which
// started it. Those users have their answers; only their other sockets wait. Under load there are hundreds of such rounds a second, and
// each NOTIFY wakes every node and commits alone, so the announcer gathers the others.
const tellEvery = 10 * time.Millisecond

// announcesAtOnce reports whether a round that answers only the clicks that started it announces itself.
func (e *Engine) announcesAtOnce() bool {
	now := time.Now().UnixNano()
	last := e.lastNotify.Load()
	return now-last >= int64(tellEvery) && e.lastNotify.CompareAndSwap(last, now)
}

// after follows a round's commit. Requests that the round left lingering did not count as lingering before. A transaction
// that pushed or closed something meanwhile could not see them, nor the shelf of a run. So the task is woken for what became
// free.
func (e *Engine) after(r *round) {
	e.countRound(r)
	e.traceAnswered(r)
	r.telling.End(true)
	if r.brief {
		e.wakeSweep()
	}
	if r.freed {
		e.WakeLingering(r.task)
	}
	e.wakeNext(r)
	e.keepFresh(r)
}

// traceAnswered makes spans for the requests that a transaction has ended, after its commit, if tracing is on.
func (e *Engine) traceAnswered(r *round) { e.Trace.Answered(r.id, r.run, r.began, r.answered) }
