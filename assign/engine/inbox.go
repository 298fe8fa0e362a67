package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/records"
)

// inbox hands out items that were pushed to a task without a query. There is no run, no run lock and no shelf: a round takes
// only the assign lock, and reads the best items by index.
type inbox struct {
	*round
	empty bool // the inbox has no items at all
}

func (b *inbox) source() plan.Source  { return plan.Inbox }
func (b *inbox) cut() bool            { return false }
func (b *inbox) usable() bool         { return !b.empty }
func (b *inbox) used() bool           { return false }
func (b *inbox) stale() bool          { return false }
func (b *inbox) runID() *int64        { return nil }
func (b *inbox) rankedAt() *time.Time { return nil }
func (b *inbox) needs() classes       { return b.state.needs }

const (
	// InboxPlaces is the number of places of an item i; $3 and $4 are the task's slots and done_by. If several users are to complete the
	// item, it has one place for each, and who completed it keeps theirs. So such an item is never one with a single place.
	InboxPlaces = `case when i.exclusive is not null then 1 when coalesce(i.done_by, $4) > 1 then coalesce(i.done_by, $4) else coalesce(i.slots, $3) end`

	// CompletedOf is who has completed an item i that several users are to complete; null if one is enough.
	CompletedOf = `case when i.exclusive is null and coalesce(i.done_by, $4) > 1 then coalesce(i.completed_by, '{}') end`
)

const (
	// Items that have fallen due join the ready ones, best first, so that nothing better stays behind than this round hands
	// out. They do not join all at once, so that the lock is held for milliseconds; the loop's next round takes the rest.
	// A few are read by when they fell due, and sorted; "+ 0" keeps the planner from the other index, in which they may stand
	// after millions that are not due. When thousands have fallen due, sorting them in each round would take longer than
	// all else, so the best are read in their order, from what is not ready.
	fallDue = `
with storm as materialized (
  select count(*) > 2000 as raging from (select from getwork.item i where ` + isDue + ` order by i.due_at limit 2001) fallen
), due as materialized (
  select few.id
  from (
    select i.id from getwork.item i
    where not (select s.raging from storm s) and ` + isDue + `
    order by i.priority + 0 desc, i.id
    for update skip locked%[1]s
  ) few
  union all
  select many.id
  from (
    select i.id from getwork.item i
    where (select s.raging from storm s) and ` + isDue + `
    order by i.priority desc, i.id
    for update skip locked%[1]s
  ) many
)
update getwork.item i set due_at = null from due where i.id = due.id`

	isDue = `i.task_id = $1 and i.done_at is null and i.due_at <= (select clock_timestamp()) and i.due_at < 'infinity'`

	// Members of a group of which one is held are left out here, by one search in what is held: a group may have very many
	// members. PostgreSQL hashes the sub-query of "not in", as it does not hash an array that it has to read first: each member
	// would be compared with each group that is held. As "case" the condition gives the planner no estimate. With one it would
	// expect next to no rows, and read all items to sort them. Items without a group do not ask what is held.
	selectInbox      = inboxHead + Availability + ` where ` + inboxTail
	selectInboxAlone = inboxHead + availabilityUnconflicted + ` where $2::bigint[] = '{}' and ` + inboxTail // for a task that conflicts with none

	inboxHead = `
select c.item, c.details::text, i.deadline, i.from_work, st.until, ` + CompletedOf + `, ` + AvailabilityColumns + `
from getwork.item i
cross join lateral (select i.item, i.details, ` + InboxPlaces + ` as slots, i.exclusive) c
` + nothingSeen
	inboxTail = `i.task_id = $1 and i.due_at is null and i.done_at is null and not st.gone
  and case when i.exclusive is null then true else i.exclusive not in (
    select w.exclusive from getwork.work w where w.task_id = $1 and w.exclusive is not null and w.state = 'held') end
order by i.priority desc, i.id`

	anyItem = `select exists (select from getwork.item where task_id = $1 and done_at is null)`

	// Items that can't be handed out leave the index of ready ones. Items with several places stay in it: the free places are
	// counted from work. The sub-query hides how many items there are, for which there would be a new plan each time; see atMost.
	parkItems = `
update getwork.item i
set due_at = 'infinity'
where i.task_id = $1 and i.item = any((select $2::text[])::text[]) and i.done_at is null and ` + InboxPlaces + ` = 1`
)

// take reads the best items that are ready now.
func (b *inbox) take(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	limit, _ := atMost(max(n, 1000))
	if _, err := r.tx.Exec(ctx, r.e.SQL(fmt.Sprintf(fallDue, limit)), r.task); err != nil {
		return nil, false, err
	}
	if b.state.needs != nil {
		return b.takeByClass(ctx, r, n)
	}
	statement := selectInbox
	if len(r.state.conflicts) == 0 {
		statement = selectInboxAlone
	}
	limit, _ = atMost(n)
	rows, err := r.tx.Query(ctx, r.e.SQL(statement+limit), r.task, r.state.conflicts, r.state.Slots, r.state.DoneBy)
	if err != nil {
		return nil, false, err
	}
	offers, err := pgx.CollectRows(rows, scanPushed)
	offers = offers[:min(n, len(offers))]
	if err != nil || len(offers) > 0 {
		return offers, len(offers) < n, err
	}
	return nil, true, b.isEmpty(ctx, r)
}

// isEmpty notes whether the inbox has no items at all.
func (b *inbox) isEmpty(ctx context.Context, r *round) error {
	var pushed bool
	err := r.tx.QueryRow(ctx, r.e.SQL(anyItem), r.task).Scan(&pushed)
	b.empty = !pushed
	return err
}

func scanPushed(row pgx.CollectableRow) (o offer, err error) {
	var completed []string
	err = scanAvailability(row, &o, &o.cand.Item, &o.cand.Details, &o.cand.Deadline, &o.from, &o.until, &completed)
	DifferentUsers(&o.Item, completed)
	return o, err
}

func (b *inbox) settle(after settlement) (string, []any) {
	return parkItems, []any{after.handed, b.state.Slots, b.state.DoneBy}
}

// DifferentUsers makes it an item that different users complete, each of them once; nil: it is not one. Its free places are as many as
// are missing, so nobody works in vain.
func DifferentUsers(it *plan.Item, completed []string) {
	if completed == nil {
		return
	}
	it.Once = true
	it.Slots -= len(completed)
	for _, user := range completed {
		it.Barred = append(it.Barred, plan.Bar{User: user, Because: plan.Completed})
	}
}

// settleItems brings the inbox into line with the work: the item of closed work is done, ready again, due later, or never to
// return. It belongs after a statement "closed" that closes work and returns its rows, in the same transaction. For a task
// with a query it finds nothing. The item's own row says whether it has one place, and is read again if another transaction
// has changed it meanwhile. With one place, holding it has parked it; with several it was ready all the time.
const settleItems = `settled as (
  update getwork.item i
  set %[1]sdue_at = case
        when i.due_at is distinct from 'infinity' then null
        when c.state = 'never' then 'infinity'
        when c.available_at > clock_timestamp() then c.available_at
      end
  from closed c
  where i.task_id = c.task_id and i.item = c.item and i.done_at is null
  returning i.task_id, i.item, i.done_at is not null as done
)`

// settleCompleted also finishes items. If several users are to complete one, it is done with the last of them: closed has their number
// under the task (done_by), and who completes the item now (users). Both are compared with the item's own row, as it is under its lock.
// A count of completed work would be that of the statement's snapshot, and of two last completions at once neither would see the other.
var settleCompleted = fmt.Sprintf(settleItems, `completed_by = case when c.state = 'completed' and i.exclusive is null and coalesce(i.done_by, c.done_by) > 1
        then coalesce(i.completed_by, '{}') || array(select u from unnest(c.users) u where u <> all (coalesce(i.completed_by, '{}')))
        else i.completed_by end,
      done_at = case when c.state = 'completed' and (i.exclusive is not null or coalesce(i.done_by, c.done_by, 1) = 1
          or cardinality(array(select unnest(i.completed_by) union select unnest(c.users))) >= coalesce(i.done_by, c.done_by))
        then clock_timestamp() end,
      `)

// lockEnded stands before settleItems, after a statement "ended" that closes much work. The items are locked first, in the order of ids:
// two statements that close different work on the same items wait for each other in one direction only. Several holders' work on one
// item may be closed at once; if any of it is completed, the item is done, as it would be if they were closed one after the other.
const lockEnded = `locked as materialized (
  select i.id
  from getwork.item i
  where (i.task_id, i.item) in (select e.task_id, e.item from ended e) and i.done_at is null
  order by i.id
  for update
), closed as materialized (
  select distinct on (e.task_id, e.item) e.*%s
  from ended e
  where (select count(*) from locked) >= 0
  order by e.task_id, e.item, e.state = 'completed' desc, e.id
), `

// SettleMany is settleItems after a statement "ended" that closes much work, and completes none.
var SettleMany = fmt.Sprintf(lockEnded, "") + fmt.Sprintf(settleItems, "")

// The ids, which are the items' ages, follow the batch's order. The rows are inserted in the order of their keys, like those
// of every batch: two batches with the same keys then wait for each other in one direction only. An item of several places
// can be done while others still hold it. Until they finish, its key is a duplicate; otherwise their closing would be taken
// for that of the new item.
//
// The task's state is locked against a deletion alone, since the push would be answered as done, and be lost.
const insertItems = `
with present as materialized (
  select needs from getwork.task_state where task_id = $1 and deleted_at is null for key share
), numbered as materialized (
  select nextval('getwork.item_id_seq') as id, p.needs as known, u.*
  from present p cross join unnest($3::text[], $4::integer[], $5::timestamptz[], $6::integer[], $7::text[], $8::text[], $10::timestamptz[], $11::integer[], $13::text[], $14::timestamptz[])
    as u (item, priority, not_before, slots, exclusive, details, deadline, done_by, needs, needs_until)
), inserted as (
  insert into getwork.item (id, task_id, item, priority, due_at, slots, exclusive, details, deadline, done_by, pushed_by, class, needs_until)
  select n.id, $1, n.item, n.priority, case when n.not_before > clock_timestamp() then n.not_before end,
    n.slots, nullif(n.exclusive, ''), n.details::json, n.deadline, n.done_by, $2,
    case when n.known is not null then (
      select k.class from jsonb_array_elements(n.known) with ordinality k (value, class) where k.value->'needs' = coalesce(n.needs, '[]')::jsonb) end,
    n.needs_until
  from numbered n
  where not exists (
    select from ` + records.Binding + ` w
    where w.task_id = $1 and w.item = n.item
      and (w.state = 'held' or (n.exclusive <> '' or coalesce(n.slots, $9) = 1 and coalesce(n.done_by, $12) = 1) and ` + records.Blocks + `))
  order by n.item collate "C", n.id
  on conflict (task_id, item) where done_at is null do nothing
  returning 1
)
select (select count(*) from inserted), exists (select from present)`

// Push adds items to an inbox: all of them or, if any is wrong, none ([assign.Invalid], which names every wrong field). It returns
// after the commit. Lingering requests get the items at once. [assign.TooLarge]: there are more than [assign.MaxPush].
func (e *Engine) Push(ctx context.Context, name string, items []assign.NewItem, by assign.Who) (assign.Pushed, error) {
	task, s, err := e.Records.Find(ctx, name, by)
	if err != nil {
		return assign.Pushed{}, err
	}
	if !s.Inbox() {
		return assign.Pushed{}, assign.Refuse(assign.Invalid, "task %q has a query, which finds its items; push to a task without one", name)
	}
	if len(items) > assign.MaxPush {
		return assign.Pushed{}, assign.Refuse(assign.TooLarge, "a batch has at most %d items; this one has %d: send it in parts", assign.MaxPush, len(items))
	}
	c, err := newColumns(items, &s)
	if err != nil {
		return assign.Pushed{}, err
	}
	var accepted int
	var present bool
	if err := e.classify(ctx, task, c); err != nil {
		return assign.Pushed{}, err
	}
	err = e.transact(ctx, func(tx pgx.Tx) error {
		if err := e.knowNeeds(ctx, tx, task, c.sets); err != nil {
			return err
		}
		return tx.QueryRow(ctx, e.SQL(insertItems), task, by.Holder.User, c.items, c.priorities, c.times, c.slots, c.exclusives, c.details, s.Slots, c.deadlines, c.doneBy, s.DoneBy, c.needs, c.untils).Scan(&accepted, &present)
	})
	if err == nil && !present {
		return assign.Pushed{}, assign.NoTask(name)
	}
	if assign.IsRefusal(err, assign.Invalid) {
		return assign.Pushed{}, err
	}
	if err != nil {
		return assign.Pushed{}, fmt.Errorf("push items: %w", err)
	}
	if accepted > 0 {
		e.Announce.Items(task)
		e.WakeLingering(task)
	}
	return assign.Pushed{Accepted: accepted, Duplicates: len(items) - accepted}, nil
}

// itemColumns holds new items as the database takes them.
type itemColumns struct {
	items, details []string
	priorities     []int32
	times          []*time.Time
	deadlines      []*time.Time
	slots, doneBy  []*int
	exclusives     []*string
	needs          []*string    // as JSON, as long as its last row that has some
	untils         []*time.Time // likewise
	sets           [][]string   // the different needs
}

// need adds what the last item needs.
func (c *itemColumns) need(n *assign.NewItem) {
	needs, err := assign.CheckSkills("needs", n.Needs, assign.MaxNeeds)
	if len(needs) == 0 || err != nil {
		return
	}
	text, _ := json.Marshal(needs)
	c.needs = withText(c.needs, len(c.items)-1, string(text))
	for n.NeedsUntil != nil && len(c.untils) < len(c.items)-1 {
		c.untils = append(c.untils, nil)
	}
	if n.NeedsUntil != nil {
		c.untils = append(c.untils, n.NeedsUntil)
	}
	if !slices.ContainsFunc(c.sets, func(s []string) bool { return slices.Equal(s, needs) }) {
		c.sets = append(c.sets, needs)
	}
}

// newColumns checks all items, and names every field that is wrong.
func newColumns(items []assign.NewItem, of *assign.Settings) (c itemColumns, err error) {
	var fields []assign.Field
	for i := range items {
		n := &items[i]
		for _, f := range n.Check() {
			fields = append(fields, assign.Field{Field: fmt.Sprintf("[%d].%s", i, f.Field), Detail: f.Detail})
		}
		if of.DoneBy > 1 && n.DoneBy == nil && (n.Exclusive != nil && *n.Exclusive != "" || n.Slots != nil && *n.Slots > 1) {
			fields = append(fields, assign.Field{Field: fmt.Sprintf("[%d].done_by", i), Detail: fmt.Sprintf("an item of task %s is completed by %d people, who may hold it at a time; one with slots or exclusive says done_by: 1", of.Name, of.DoneBy)})
		}
		details := string(bytes.TrimSpace(n.Details))
		if details == "" || details == "null" {
			details = "{}"
		}
		c.items = append(c.items, n.Item)
		c.details = append(c.details, details)
		c.priorities = append(c.priorities, n.Priority)
		c.times = append(c.times, n.NotBefore)
		c.deadlines = append(c.deadlines, n.Deadline)
		c.slots, c.doneBy = append(c.slots, n.Slots), append(c.doneBy, n.DoneBy)
		c.exclusives = append(c.exclusives, n.Exclusive)
		c.need(n)
	}
	if len(fields) > 0 {
		return c, &assign.Refusal{Kind: assign.Invalid, Detail: fields[0].Field + ": " + fields[0].Detail + "; nothing was pushed", Fields: fields[:min(len(fields), 100)]}
	}
	return c, nil
}
