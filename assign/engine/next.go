package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/records"
	"getwork/notify"
)

// A request over several tasks stands in a line of its own, that of task 0. The rounds of all its targets may serve it; the first that
// gives it something makes it a request of its task, in the update that ends it. So no two tasks answer it.
//
// The run of one task is for it: the first of its todo, the targets that are still to be asked. A round of that task which has nothing
// for it takes the task off, in its own transaction, and wakes the next. With nothing left to ask the request ends; or it sleeps, if it
// lingers, until its look_after, when all targets are to be asked again (see settleNext). Awake or asleep, it gets what becomes free in
// any of its targets, whose rounds read it like those who linger: as far as there is something to give. To those tasks it is Elsewhere.
//
// unseen are the targets whose rounds have not looked for it. Whoever records a request wakes all its targets after the commit. If that
// node dies, the rescuer wakes those that are still unseen two seconds later, and that have something to give.
//
// Rows of this line are shared by the rounds of several tasks, each of which has another assign lock. They are locked by id, together
// with those of the round's own task. A round that plans again keeps what it has locked, and locks no lower row of this line: two rounds
// could wait for each other.

// allTasks is what the API calls the task of a request that no task has answered.
const allTasks = "*"

const (
	// canAsk is true of a task s, in its version v, whose query may run for a request over several tasks.
	canAsk = `(v.query is not null and not s.paused and s.deleted_at is null and not ` + records.Failing + `)`

	// foundNothing is true of a task whose last run is so young that a request over several tasks is not a reason for another, and
	// found nothing.
	foundNothing = `coalesce((select u.candidates = 0 and not u.cut and u.version = s.version
      and u.finished_at between clock_timestamp() - v.rerun_after and clock_timestamp()
    from getwork.run u where u.id = s.last_run), false)`

	// isFull is true of a task of which the user %s may hold no more.
	isFull = `case when v.max_open is null then false else v.max_open <= (
    select count(*) from getwork.work w where w.user_name = %s and w.state = 'held' and w.task_id + 0 = s.task_id) end`

	ofTargets = ` with ordinality t (id, n)
    join getwork.task_state s on s.task_id = t.id
    join getwork.task_version v on v.task_id = s.task_id and v.version = s.version`
)

// givenNothing is why the user of a row can be given nothing of any task; null: they can.
func givenNothing(row string) string {
	return `(select case
      when exists (select from getwork.absence a where a.user_name = u.user_name and ` + records.InForce + `) then 'away'
      when l.version is not null and (` + records.LimitOf + `) <= (select count(*) from getwork.work w where w.user_name = u.user_name and w.state = 'held') then 'at_limit'
    end
    from (select ` + row + `.user_name, ` + row + `.groups::text[] as groups, ` + row + `.program) u left join ` + records.LimitsInForce + ` on true)`
}

// toAsk selects those tasks of an array, in its order, that are worth a run for the user of a row.
func toAsk(tasks, row string) string {
	return `array(
    select s.task_id from unnest(case when ` + givenNothing(row) + ` is null then ` + tasks + ` else '{}' end)` + ofTargets + `
    where ` + canAsk + ` and not ` + foundNothing + ` and not ` + fmt.Sprintf(isFull, row+".user_name") + `
    order by t.n)`
}

// asleep is for how long a request r sleeps: the greatest rerun_after of its targets, in microseconds.
const asleep = `(select (extract(epoch from max(v.rerun_after)) * 1000000)::bigint from unnest(r.targets)` + ofTargets + `)`

// nextRow is what a round of a task knows of a request over several.
type nextRow struct {
	first  bool           // the task's run is for it
	unseen bool           // no round of the task has looked for it
	rest   []int64        // what is to be asked after the task, if that is the first
	reason *assign.Reason // why the tasks before it gave nothing; the most hopeful one
	failed bool           // the query of one of them failed
	sleep  *int64         // see asleep
}

// Behind waiterColumns: those of a nextRow. Only what is asked next is looked at, since hundreds may wait.
var nextColumns = `, r.task_id = 0, coalesce(r.todo[1] = $1, false), coalesce($1 = any(r.unseen), false),
  case when r.todo[1] = $1 then ` + toAsk(`array_remove(r.todo, $1)`, `r`) + ` end, r.reason, r.error is not null,
  case when r.todo[1] = $1 then ` + asleep + ` end`

func scanNextWaiter(row pgx.CollectableRow) (w waiter, err error) {
	var is bool
	var n nextRow
	if w, err = scanWaiterWith(row, &is, &n.first, &n.unseen, &n.rest, &n.reason, &n.failed, &n.sleep); is {
		w.next = &n
		w.unread, w.due = w.unread && n.first, w.due && n.first
	}
	return w, err
}

// These are the statements of waiting.go for a round that reads both lines: its own, and the requests over several tasks that it may
// serve. $3 and $4 keep one that plans again from locking others of these below what it has locked.
const (
	mayServe = `q.task_id between 0 and 0 and q.state = 'pending' and $1 = any(q.targets) and (q.id > $3 or q.id = any($4::bigint[]))`

	mustServe = `($1 = any(q.unseen) or coalesce(q.todo[1] = $1, false) and (q.look_after is null or q.look_after <= (select clock_timestamp())))`

	nextLingeringOfBoth = `coalesce((
  select b.id
  from (
    (select q.id
    from getwork.work_requested q
    where q.task_id between $1 and $1 and q.state = 'pending' and q.id > $2
      and q.linger_until is not null and q.look_after > (select clock_timestamp())
    order by q.task_id, q.id
    limit 1 + %[1]d)
    union all
    (select q.id
    from getwork.work_requested q
    where ` + mayServe + ` and q.id > $2 and not ` + mustServe + `
    order by q.task_id, q.id
    limit 1 + %[1]d)) b
  order by b.id
  offset %[1]d
  limit 1), 9223372036854775807)`

	mustReadOfBoth = mustRead + `
  union all
  select q.id
  from getwork.work_requested q
  where ` + mayServe + ` and q.id > %[1]s and ` + mustServe

	ofBoth = `
from getwork.work_requested r
where r.id = any (array(%s)) and r.state = 'pending'` + locked
)

var (
	selectNextOfBoth = `
select l.id, exists (` + fmt.Sprintf(mustReadOfBoth, "l.id") + `)
from (select ` + nextLingeringOfBoth + ` as id offset 0) l`

	selectBoth = `
select ` + waiterColumns + nextColumns + fmt.Sprintf(ofBoth, `
  select q.id
  from getwork.work_requested q, (select `+nextLingeringOfBoth+` as id offset 0) up
  where q.task_id = $1 and q.state = 'pending' and (q.task_id, q.id) > ($1, $2) and (q.task_id, q.id) < ($1, up.id)
  union all
  select q.id
  from getwork.work_requested q, (select `+nextLingeringOfBoth+` as id offset 0) up
  where `+mayServe+` and q.id > $2 and q.id < up.id`)

	selectAllOfBoth = `
select ` + waiterColumns + nextColumns + fmt.Sprintf(ofBoth, `
  select q.id from getwork.work_requested q where q.task_id = $1 and q.state = 'pending'
  union all
  select q.id from getwork.work_requested q where q.id > $2 and `+mayServe)

	selectMustReadOfBoth = `
select ` + waiterColumns + nextColumns + fmt.Sprintf(ofBoth, fmt.Sprintf(mustReadOfBoth, "(select $2::bigint)"))
)

// passing are requests over several tasks to which a round gives nothing, and what becomes of them.
type passing struct {
	seen   []int64 // nothing, but that the round has looked for them
	ids    []int64 // the task was the first to be asked: what is below
	states []string
	todos  []string
	why    []*string
	sleeps []*int64
}

// hopeful are the reasons, the most hopeful first.
var hopeful = []assign.Reason{assign.Away, assign.AtLimit, assign.Rules, assign.AllHeld, assign.NoMatch, assign.Paused}

// hopefulSQL is the place of a reason among those.
const hopefulSQL = `array_position(array['away', 'at_limit', 'rules', 'all_held', 'no_match', 'paused'], `

// moreHopeful returns the more hopeful of two reasons; empty: none.
func moreHopeful(a, b assign.Reason) assign.Reason {
	if a == "" || b != "" && slices.Index(hopeful, b) < slices.Index(hopeful, a) {
		return b
	}
	return a
}

// add takes the task off what is to be asked for a request. why says why it gives nothing; empty: its query failed. It returns what
// becomes of the request.
func (p *passing) add(r *round, w *waiter, why assign.Reason) assign.State {
	state, failed := assign.Pending, w.next.failed || why == ""
	if w.next.reason != nil {
		why = moreHopeful(why, *w.next.reason)
	}
	var sleep *int64
	switch {
	case len(w.next.rest) > 0:
		if !slices.Contains(r.wakes, w.next.rest[0]) {
			r.wakes = append(r.wakes, w.next.rest[0])
		}
	case w.lingers:
		sleep = w.next.sleep
	case failed && (why == "" || why == assign.NoMatch):
		state, why = assign.Failed, ""
	default:
		state = assign.None
	}
	p.ids = append(p.ids, w.id)
	p.states = append(p.states, string(state))
	p.todos = append(p.todos, arrayOf(w.next.rest))
	p.sleeps = append(p.sleeps, sleep)
	var reason *string
	if why != "" {
		reason = (*string)(&why)
	}
	p.why = append(p.why, reason)
	if state == assign.Pending {
		r.passed = append(r.passed, w.id)
	}
	return state
}

// arrayOf returns an array of numbers as PostgreSQL writes it.
func arrayOf(ids []int64) string {
	return "{" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ","), "[]") + "}"
}

const (
	noteSeen = `
update getwork.work_requested r
set unseen = array_remove(r.unseen, $1)
where r.id = any($2::bigint[]) and r.task_id = 0 and r.state = 'pending'`

	passOn = `
update getwork.work_requested r
set state = a.state, requested = case when a.state = 'pending' then r.requested else 0 end,
    todo = a.todo::bigint[], unseen = array_remove(r.unseen, $1), reason = a.reason,
    error = case when a.state <> 'none' then coalesce($7, r.error) end,
    look_after = case when a.sleep is not null then least(clock_timestamp() + a.sleep * interval '1 microsecond', r.linger_until) end,
    completed_at = case when a.state <> 'pending' then clock_timestamp() end,
    round_id = case when a.state <> 'pending' then $8::bigint end, run_id = case when a.state <> 'pending' then nullif($9::bigint, 0) end
from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[]) as a (id, state, todo, reason, sleep)
where r.id = a.id and r.task_id = 0 and r.state = 'pending'`
)

// write queues what becomes of them. message is the error of the task's query; empty: it has not failed.
func (p *passing) write(x *pg.Writes, r *round, run int64, message string) {
	if len(p.seen) > 0 {
		x.Queue(len(p.seen), r.e.SQL(noteSeen), r.task, p.seen)
	}
	if len(p.ids) > 0 {
		var failed *string
		if message != "" {
			failed = &message
		}
		x.Queue(len(p.ids), r.e.SQL(passOn), r.task, p.ids, p.states, p.todos, p.why, p.sleeps, failed, r.id, run)
	}
}

// passes notes a request over several tasks to which the round gives nothing, and reports whether that is all that is to be done with
// it.
func (r *round) passes(p *passing, w *waiter, a plan.Answer) bool {
	switch {
	case len(a.Grants) > 0:
		return false
	case w.click != nil && w.click.targets != nil:
		for _, k := range r.clicks[w.holder] {
			if !k.lost {
				k.err = errElsewhere
			}
		}
		return true
	case w.next == nil:
		return false
	case w.next.first && a.Outcome != plan.Wait:
		if state := p.add(r, w, reasons[a.Reason]); state != assign.Pending {
			r.ended(w, state)
		}
		return true
	case w.next.unseen:
		p.seen = append(p.seen, w.id)
	}
	return !w.next.first
}

// fails is passes for a round of a query that failed. The others are left as they are.
func (r *round) fails(p *passing, w *waiter) bool {
	if w.next == nil {
		return false
	}
	if w.next.first {
		if state := p.add(r, w, ""); state != assign.Pending {
			r.ended(w, state)
		}
	}
	return true
}

// ended counts a recorded request that the round ends.
func (r *round) ended(w *waiter, state assign.State) {
	r.answered = append(r.answered, w.id)
	r.ends[state]++
	r.waits = append(r.waits, w.waited)
}

// wakeNext follows the commit of a round that has passed requests on to other tasks.
func (e *Engine) wakeNext(r *round) {
	for _, task := range r.wakes {
		e.Wake(task)
	}
}

// target is a task that a request over several may be served from.
type target struct {
	ID         int64
	Name       string
	Groups     []string
	MaxRequest int
	Picked     bool // people may not ask for it by name
	Gives      bool // it has something, as far as one can see without its lock
}

// By priority, then who was least recently asked: equal ones take turns.
var selectTargets = `
select s.task_id, s.name, v.groups, v.max_request, coalesce(v.pick = 'next', false),
  not s.paused and case
    when v.query is null then exists (
      select from getwork.item i where i.task_id = s.task_id and i.done_at is null and i.due_at is null)
      or exists (
      select from getwork.item i where i.task_id = s.task_id and i.done_at is null and i.due_at < 'infinity' and i.due_at <= clock_timestamp())
    else v.recheck is null and s.shelf_left > 0 and ` + records.ShelfFresh + ` end
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.deleted_at is null
order by coalesce(v.priority, 0) desc, s.used_at nulls first, s.task_id`

// menu is one read of all tasks, for the clicks that came before it began.
type menu struct {
	done  chan struct{} // closed when it is read
	tasks []target
	err   error
}

// menu returns all tasks, read after the call. Clicks that come while a read is under way share the next one: it costs as much as a click.
func (e *Engine) menu(ctx context.Context) ([]target, error) {
	e.mu.Lock()
	m := e.nextMenu
	if m == nil {
		m = &menu{done: make(chan struct{})}
		if !e.spawn(func(context.Context) { e.readMenu(m) }) {
			e.mu.Unlock()
			return nil, errEnding
		}
		e.nextMenu = m
	}
	e.mu.Unlock()
	select {
	case <-m.done:
		return m.tasks, m.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readMenu is not bound to the engine's context, as little as what records the clicks: see recordAll.
func (e *Engine) readMenu(m *menu) {
	e.readingMenu.Lock()
	defer e.readingMenu.Unlock()
	e.mu.Lock()
	e.nextMenu = nil // who comes from now on might miss what is committed now
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), recordWithin)
	defer cancel()
	rows, err := e.DB.Query(ctx, e.SQL(selectTargets))
	if err == nil {
		m.tasks, err = pgx.CollectRows(rows, pgx.RowToStructByPos[target])
	}
	if err != nil {
		m.err = fmt.Errorf("read the tasks: %w", err)
	}
	close(m.done)
}

// targets returns the tasks that a click is for, in the order in which they are asked.
func (e *Engine) targets(ctx context.Context, c assign.Click) ([]target, error) {
	tasks, err := e.menu(ctx)
	if err != nil {
		return nil, err
	}
	names := c.Tasks
	if names[0] == allTasks {
		names = c.Within
	}
	who := assign.Who{Holder: c.Holder, Groups: c.Groups, Anything: c.Anything}
	var found []target
	for _, t := range tasks {
		if (names == nil || slices.Contains(names, t.Name)) && who.May(t.Groups) {
			found = append(found, t)
		}
	}
	if c.Tasks[0] == allTasks {
		if len(found) == 0 {
			return nil, assign.Refuse(assign.NotFound, "no task is open to you; ask a manager which group you need")
		}
	} else {
		for _, name := range c.Tasks {
			at := slices.IndexFunc(found, func(t target) bool { return t.Name == name })
			if at < 0 {
				return nil, assign.NoTask(name)
			}
			if found[at].Picked && !c.Picks {
				return nil, assign.Refuse(assign.Forbidden, "%s", assign.NotByName(name))
			}
		}
	}
	most := 0
	for _, t := range found {
		most = max(most, t.MaxRequest)
	}
	return found, c.Check(most)
}

// GetNext is [Engine.GetWork] over several tasks, c.Tasks. The request is of the first of them that can give it something now, or waits
// for the first that can; a holder who has such a request that waits gets that one.
func (e *Engine) GetNext(ctx context.Context, c assign.Click) (r assign.Request, err error) {
	if err := assign.CheckTasks(c.Tasks); err != nil {
		return r, err
	}
	targets, err := e.targets(ctx, c)
	if err != nil {
		return r, err
	}
	k := &click{Click: c, holder: c.Holder, targets: make([]int64, len(targets)), names: make([]string, len(targets)), gone: ctx.Done()}
	for i, t := range targets {
		k.targets[i], k.names[i] = t.ID, t.Name
	}
	tried := 0
	for _, t := range targets {
		if !t.Gives || tried == mostTried {
			continue
		}
		tried++
		k.done = make(chan struct{})
		if err := e.dispatch(t.Name, k); err != nil {
			return r, err
		}
		select {
		case <-k.done:
		case <-ctx.Done(): // as for GetWork
			return r, ctx.Err()
		}
		switch {
		case k.err == nil:
			return *k.answer, nil
		case !errors.Is(k.err, errElsewhere):
			return r, k.err
		}
	}
	if !e.Running() {
		return r, errEnding
	}
	if c.Holder.Instance != "" {
		if err := e.refuseCrowding(ctx, k); err != nil {
			return r, err
		}
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	if err := e.recordNext(after, k); err != nil {
		return r, fmt.Errorf("record request: %w", err)
	}
	found, err := e.Records.Requests(after, []int64{k.id})
	if err != nil {
		return r, err
	}
	if len(found) == 0 {
		return r, fmt.Errorf("read requests: request %d is gone", k.id)
	}
	return found[0], nil
}

// refuseCrowding is admitInstances for a click over several tasks.
func (e *Engine) refuseCrowding(ctx context.Context, k *click) error {
	rows, err := e.DB.Query(ctx, e.SQL(selectCrowding), allTasks, []string{k.holder.User}, []string{k.holder.Instance}, []string{k.Key})
	var crowding []int
	if err == nil {
		crowding, err = pgx.CollectRows(rows, pgx.RowTo[int])
	}
	if err != nil {
		return fmt.Errorf("count the waiting requests: %w", err)
	}
	if len(crowding) > 0 {
		return errCrowding
	}
	return nil
}

// mostTried is in how many tasks that seem to have something a click over several tries to get it, before it waits for whichever has.
const mostTried = 3

// errElsewhere says that a task's round has nothing for a click over several tasks. It is not recorded then.
var errElsewhere = errors.New("this task has nothing for it")

// leave leaves clicks over several tasks to other tasks, and returns those on this one alone.
func leave(batch []*click) (others []*click) {
	for _, k := range batch {
		if k.targets != nil {
			k.err = errElsewhere
		} else {
			others = append(others, k)
		}
	}
	return others
}

// recordNext records a click over several tasks of which none has something for it, and wakes all of them if it waits: something may have
// come to one of them since it was tried.
func (e *Engine) recordNext(ctx context.Context, k *click) (err error) {
	batch := []*click{k}
	var state assign.State
	for range attempts {
		err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
			state = assign.Pending
			k.id, k.lost, k.inserted, k.err = 0, false, "", nil
			if err := e.insertClicks(ctx, tx, 0, batch); err != nil || k.err != nil || k.inserted == "" {
				return nil, cmp.Or(err, k.err)
			}
			settled, err := e.settleNext(ctx, tx, k.id)
			if err != nil {
				return nil, err
			}
			if len(settled) > 0 {
				state = settled[0].State
			}
			e.Steps(ctx, StepWritten)
			return []notify.Change{{Requests: []int64{k.id}}}, nil
		})
		switch {
		case errors.Is(err, errOldKeys):
			if err := e.clearKeys(ctx, batch, 0); err != nil {
				return err
			}
		case errors.Is(err, errSettle):
			if _, settled := e.settle(ctx, 0, batch); settled != nil || k.err != nil {
				return cmp.Or(settled, k.err)
			}
		default:
			if err != nil || k.inserted == "" {
				return err
			}
			e.Recorded.n.Add(1)
			e.Steps(ctx, StepRecorded)
			if state != assign.Pending {
				e.countEnd(0, state, 1)
				return nil
			}
			for _, t := range k.targets {
				e.WakeLingering(t)
			}
			return nil
		}
	}
	return err
}

// Like insertRequests, for one holder. The request waits; settleNext ends it if no task is to be asked.
var insertNext = `
insert into getwork.work_requested (task_id, user_name, instance, wanted, requested, linger_until, lease, groups, credential, valid_until,
  traceparent, key, key_scope, key_body, program, targets, unseen, todo)
select 0, c.user_name, c.instance, c.wanted, c.wanted,
  case when c.linger > 0 then clock_timestamp() + c.linger * interval '1 microsecond' end,
  c.lease * interval '1 microsecond', c.groups::text[], c.credential, c.valid_until, c.traceparent, c.key, case when c.key is not null then 0 end, c.key_body, c.program,
  $13::bigint[], $13::bigint[], ` + toAsk(`$13::bigint[]`, `c`) + `
from unnest($1::text[], $2::text[], $3::integer[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::timestamptz[],
  $9::text[], $10::text[], $11::text[], $12::boolean[])
  as c (user_name, instance, wanted, linger, lease, groups, credential, valid_until, traceparent, key, key_body, program)
where case when c.credential is null then true else coalesce(c.valid_until > clock_timestamp(), true) and c.credential not in (select e from getwork.ended_among($7) e) end
  and (
    select true from getwork.work_requested p
    where p.task_id + 0 = 0 and p.user_name = c.user_name and p.instance = c.instance and p.state = 'pending' limit 1) is null
on conflict do nothing
returning id, user_name, instance, state`

// settleNext looks at requests over several tasks that nobody's run is for: with nothing left to ask, awake since a moment; asleep, and
// their look_after has come; or the task that is to be asked first can't be, because it was paused, deleted or is in back-off. They are
// for what can be asked now, of all targets or of those that were left. If that is nothing they go to sleep, or end. Which task is
// skipped because its last run found nothing a moment ago tells ranked_at.
var settleNext = `
with stuck as materialized (
  select r.id, r.linger_until > clock_timestamp() as lingers,
    ` + toAsk(`case when r.todo = '{}' then r.targets else r.todo end`, `r`) + ` as todo, ` + asleep + ` as sleep, case when $1 <> 0 then ` + givenNothing(`r`) + ` end as nothing,
    coalesce((
      select x.reason
      from (
        select r.reason
        union all
        select ` + givenNothing(`r`) + `
        union all
        select case
          when s.paused then 'paused'
          when ` + fmt.Sprintf(isFull, `r.user_name`) + ` then 'at_limit'
          when v.query is null and exists (select from getwork.item i where i.task_id = s.task_id and i.done_at is null) then 'all_held'
          when ` + foundNothing + ` and (select u.given > u.passed_over from getwork.run u where u.id = s.last_run) then 'all_held'
          when not ` + records.Failing + ` then 'no_match'
        end
        from unnest(r.targets)` + ofTargets + `
        where s.deleted_at is null) x
      where x.reason is not null
      order by ` + hopefulSQL + `x.reason)
      limit 1), case when r.error is null then 'no_match' end) as reason,
    coalesce(r.error, (select s.last_error from unnest(r.targets)` + ofTargets + ` where s.deleted_at is null and ` + records.Failing + ` order by t.n limit 1)) as error,
    (select min(` + records.RankedAt + `) from unnest(r.targets)` + ofTargets + ` join getwork.run u on u.id = s.last_run where ` + foundNothing + `) as ranked_at
  from getwork.work_requested r
  where r.task_id = 0 and r.state = 'pending' and ($1 = 0 or r.id = $1)
    and (r.todo = '{}' and coalesce(r.look_after <= clock_timestamp(), true)
      or r.todo <> '{}' and not exists (
        select from unnest(r.todo[1:1])` + ofTargets + ` where ` + canAsk + `))
  order by r.id
  for update of r skip locked
), became as (
  select s.*, case when s.nothing is not null then 'none' when s.todo <> '{}' or s.lingers then 'pending'
    when s.error is not null and coalesce(s.reason, 'no_match') in ('no_match', 'paused') then 'failed' else 'none' end as state
  from stuck s
)
update getwork.work_requested r
set todo = b.todo, state = b.state,
    look_after = case when b.todo = '{}' then least(clock_timestamp() + b.sleep * interval '1 microsecond', r.linger_until) end,
    requested = case when b.state = 'pending' then r.requested else 0 end,
    reason = case when b.state = 'none' then coalesce(b.reason, 'no_match') when b.state = 'pending' then r.reason end,
    error = case when b.state = 'failed' then b.error when b.state = 'pending' then r.error end,
    ranked_at = case when b.state = 'none' then b.ranked_at end,
    completed_at = case when b.state <> 'pending' then clock_timestamp() end
from became b
where r.id = b.id and r.state = 'pending'
returning r.id, r.state, coalesce(r.todo[1], 0)`

// settled is what became of a request.
type settled struct {
	ID    int64
	State assign.State
	First int64 // the task that is to be asked first; 0: none
}

// settleNext settles one request or, if id is 0, all.
func (e *Engine) settleNext(ctx context.Context, tx pgx.Tx, id int64) ([]settled, error) {
	rows, err := tx.Query(ctx, e.SQL(settleNext), id)
	var all []settled
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[settled])
	}
	if err != nil {
		return nil, fmt.Errorf("settle requests over several tasks: %w", err)
	}
	return all, nil
}

// SettleNext settles all requests over several tasks: after a task was paused or deleted, and now and then.
func (e *Engine) SettleNext(ctx context.Context) error {
	var all []settled
	err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) (changes []notify.Change, err error) {
		if all, err = e.settleNext(ctx, tx, 0); err != nil || len(all) == 0 {
			return nil, err
		}
		var changed notify.Change
		for _, s := range all {
			changed.Requests = append(changed.Requests, s.ID)
		}
		return []notify.Change{changed}, nil
	})
	if err != nil {
		return err
	}
	woken := map[int64]bool{}
	for _, s := range all {
		e.countEnd(0, s.State, 1)
		if s.First != 0 && !woken[s.First] {
			woken[s.First] = true
			e.Wake(s.First)
		}
	}
	return nil
}

const selectMayServe = `select exists (select from getwork.work_requested r where r.task_id = 0 and r.state = 'pending' and $1 = any(r.targets))`

// TaskChanged follows the change of a task, which may be paused, resumed or deleted: requests over several tasks are not for it any more,
// or get what it has.
func (e *Engine) TaskChanged(task int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spawn(func(ctx context.Context) {
		var waits bool
		if err := e.DB.QueryRow(ctx, e.SQL(selectMayServe), task).Scan(&waits); err != nil || !waits {
			return // if it fails, the rescuer does this
		}
		if err := e.SettleNext(ctx); err != nil && ctx.Err() == nil {
			e.logRescueError("take a task off what is to be asked", err)
		}
		e.WakeLingering(task)
	})
}

// selectUnseen reads the tasks that have something to give, and of whose rounds none has looked for a request for two seconds. A run that
// is under way looks when it ends; but another task's says nothing.
const selectUnseen = `
select distinct s.task_id
from getwork.work_requested r cross join lateral unnest(r.unseen)` + ofTargets + `
where r.task_id = 0 and r.state = 'pending' and r.created_at not between clock_timestamp() - interval '2 seconds' and clock_timestamp()
  and s.deleted_at is null and not s.paused and (v.query is null or ` + records.ShelfLasts + `)`

// rescueNext settles requests over several tasks, and wakes the tasks that have not looked for one.
func (r *rescuer) rescueNext(ctx context.Context) {
	if err := r.SettleNext(ctx); err != nil && ctx.Err() == nil {
		r.logRescueError("look for requests over several tasks that nobody's run is for", err)
	}
	rows, err := r.DB.Query(ctx, r.SQL(selectUnseen))
	var tasks []int64
	if err == nil {
		tasks, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		r.logRescueError("look for requests over several tasks that nobody has read", err)
	}
	for _, task := range tasks {
		r.WakeLingering(task)
	}
}
