package engine

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/records"
)

// The ids, which are the items' ages, follow the batch's order. The rows are inserted in the order of their keys, like those
// of every batch: two batches with the same keys then wait for each other in one direction only. An item of several places
// can be done while others still hold it. Until they finish, its key is a duplicate; otherwise their closing would be taken
// for that of the new item.
//
// The task's state is locked against a deletion alone, since the push would be answered as done, and be lost.
const insertItems = `
with present as materialized (
  select from getwork.task_state where task_id = $1 and deleted_at is null for key share
), numbered as materialized (
  select nextval('getwork.item_id_seq') as id, u.*
  from present cross join unnest($3::text[], $4::integer[], $5::timestamptz[], $6::integer[], $7::text[], $8::text[])
    as u (item, priority, not_before, slots, exclusive, details)
), inserted as (
  insert into getwork.item (id, task_id, item, priority, due_at, slots, exclusive, details, pushed_by)
  select n.id, $1, n.item, n.priority, case when n.not_before > clock_timestamp() then n.not_before end,
    n.slots, nullif(n.exclusive, ''), n.details::json, $2
  from numbered n
  where not exists (
    select from ` + records.Binding + ` w
    where w.task_id = $1 and w.item = n.item
      and (w.state = 'held' or (n.exclusive <> '' or coalesce(n.slots, $9) = 1) and ` + records.Blocks + `))
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
	c, err := newColumns(items)
	if err != nil {
		return assign.Pushed{}, err
	}
	var accepted int
	var present bool
	err = e.transact(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, e.SQL(insertItems), task, by.Holder.User, c.items, c.priorities, c.times, c.slots, c.exclusives, c.details, s.Slots).Scan(&accepted, &present)
	})
	if err == nil && !present {
		return assign.Pushed{}, assign.NoTask(name)
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
	slots          []*int
	exclusives     []*string
}

// newColumns checks all items, and names every field that is wrong.
func newColumns(items []assign.NewItem) (c itemColumns, err error) {
	var fields []assign.Field
	for i := range items {
		n := &items[i]
		for _, f := range n.Check() {
			fields = append(fields, assign.Field{Field: fmt.Sprintf("[%d].%s", i, f.Field), Detail: f.Detail})
		}
		details := string(bytes.TrimSpace(n.Details))
		if details == "" || details == "null" {
			details = "{}"
		}
		c.items = append(c.items, n.Item)
		c.details = append(c.details, details)
		c.priorities = append(c.priorities, n.Priority)
		c.times = append(c.times, n.NotBefore)
		c.slots = append(c.slots, n.Slots)
		c.exclusives = append(c.exclusives, n.Exclusive)
	}
	if len(fields) > 0 {
		return c, &assign.Refusal{Kind: assign.Invalid, Detail: fields[0].Field + ": " + fields[0].Detail + "; nothing was pushed", Fields: fields[:min(len(fields), 100)]}
	}
	return c, nil
}
