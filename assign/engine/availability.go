package engine

import (
	"github.com/jackc/pgx/v5"

	"getwork/assign/plan"
	"getwork/assign/records"
)

// availabilityBase reads whether an item c (item, slots, exclusive) of the task $1 can be handed out now: who holds its
// places, who may not have it, and whether it is gone. u (snapshot, seen_until) is what the run that ranked the item saw, or
// nulls if none did. It reads the work that binds the item, and only the last of the work that is over.
//
// An item with one place is gone when it is held, put off or never to return. An item that was closed by a transaction that
// the run did not see is not handed out from that run either: the query may have ranked it by the state before. Transactions
// decide, not times: a closing can be stamped before a snapshot and commit after it. The transaction of a closing that we can
// see is older than the end of our own snapshot; a newer one belongs to another server's life, from which the tables were
// restored. The last closing decides for all: nobody holds an item of a run's result while the query reads it, so a closing
// that the query did not see belongs to a later hand-out than one that it saw. Items with several places are never gone: held
// rows use places up, and work that was put off or is never to return binds its own user alone.
//
// A failed or expired attempt counts as an attempt; one that was put off or reassigned does not. After any other closing the
// next attempt is the first. Other holders of the item, whose attempts are not over, do not count.
const availabilityBase = `
cross join lateral (
  select array_agg(w.slot) filter (where w.state = 'held') as taken,
    array_agg(w.user_name) filter (where w.state = 'held') as users,
    array_agg(w.instance) filter (where w.state = 'held') as instances,
    array_agg(w.user_name) filter (where w.to_others or c.slots > 1 and w.state <> 'held') as barred,
    min(w.available_at) filter (where c.slots > 1 and ` + records.Blocks + `) as until,
    coalesce(bool_or(c.slots = 1 and ` + records.Blocks + `), false) as bound
  from ` + records.Binding + ` w
  where w.task_id = $1 and w.item = c.item
) now
left join lateral (
  select w.closed_xid, w.closed_at,
    case when w.state in ('failed', 'expired') then w.attempt + 1 when w.state in ('returned', 'reassigned') then w.attempt end as attempt
  from getwork.work w
  where w.task_id = $1 and ` + records.LastOf + ` and w.state <> 'held'
  ` + records.NewestFirst + `
) last on true
cross join lateral (
  select now.taken, now.users, now.instances, now.barred, now.until, coalesce(last.attempt, 1) as attempt,
    now.bound or coalesce(c.slots = 1 and (
      not pg_visible_in_snapshot(last.closed_xid, u.snapshot) and last.closed_xid < pg_snapshot_xmax(pg_current_snapshot())
      or last.closed_at > u.seen_until), false) as gone
) st`

// busy is true if another member of the item's group is held. "limit 1" makes it an index look-up for each item, instead of a
// hash of all held work.
const busy = `c.exclusive is not null and coalesce((
    select true from getwork.work w where w.task_id = $1 and w.exclusive = c.exclusive and w.state = 'held' limit 1), false) as busy`

// completedBy selects the users who have completed the item c of the task t.id, each by a look-up that begins after the one
// before, since a user may have completed it very often.
const completedBy = `(
    with recursive found as (
      (select w.user_name from getwork.work w
        where w.task_id = t.id and w.item = c.item and w.state = 'completed' order by w.user_name limit 1)
      union all
      select (select w.user_name from getwork.work w
        where w.task_id = t.id and w.item = c.item and w.state = 'completed' and w.user_name > found.user_name order by w.user_name limit 1)
      from found where found.user_name is not null
    )
    select user_name from found where user_name is not null
  )`

const (
	// availability is availabilityBase, and the users whom the tasks $2 bar that $1 conflicts with.
	availability = availabilityBase + `
cross join lateral (
  select case when $2::bigint[] <> '{}' then array(
    select w.user_name from unnest($2::bigint[]) t (id) cross join lateral (
      select user_name from getwork.work where task_id = t.id and item = c.item and state = 'held' order by slot) w -- see records.Binding
    union all
    select d.user_name from unnest($2::bigint[]) t (id) cross join lateral ` + completedBy + ` d) end as elsewhere, ` + busy + `
) eyes`

	// availabilityUnconflicted is availability for a task that conflicts with none. The check for conflicts would cost a few
	// hundredths of a click.
	availabilityUnconflicted = availabilityBase + `
cross join lateral (select null::text[] as elsewhere, ` + busy + `) eyes`
)

const availabilityColumns = `c.slots, c.exclusive, st.attempt, st.taken, st.users, st.instances, st.barred, eyes.elsewhere, eyes.busy`

// nothingSeen is u for items that no run has ranked.
const nothingSeen = `cross join (select null::pg_snapshot as snapshot, null::timestamptz as seen_until) u`

// scanAvailability reads a row whose first columns go into into, followed by availabilityColumns.
func scanAvailability(row pgx.CollectableRow, o *offer, into ...any) error {
	var users, instances []string
	err := row.Scan(append(into, &o.cand.Slots, &o.cand.Exclusive, &o.attempt, &o.Taken, &users, &instances, &o.Barred, &o.elsewhere, &o.Busy)...)
	for i := range users {
		o.Holders = append(o.Holders, plan.Holder{User: users[i], Instance: instances[i]})
	}
	o.Barred = append(o.Barred, o.elsewhere...)
	o.Slots = o.cand.Slots
	if o.cand.Exclusive != nil {
		o.Exclusive = *o.cand.Exclusive
	}
	return err
}

const (
	// settlePlaces concerns items without a number of places of their own. With one place, an item whose work is held, put
	// off or never to return leaves the index of ready items. With several, such work binds its own holder alone, and others
	// can have the item.
	//
	// lockBlocking first locks the work, which waits for closings under way, so that the next statement reads what they
	// wrote. It orders by a sum, because otherwise PostgreSQL might read all work in the order of its ids.
	lockBlocking = `
select from getwork.work b
where b.id = any (array(select w.id from ` + records.Binding + ` w where w.task_id = $1 and ` + records.Blocks + `))
order by b.id + 0
for update`
	settlePlaces = `
update getwork.item i
set due_at = case when $2 = 1 then greatest(i.due_at, b.until) else nullif(i.due_at, b.until) end
from (
  select w.item, max(coalesce(w.available_at, 'infinity')) as until
  from ` + records.Binding + ` w
  where w.task_id = $1 and ` + records.Blocks + `
  group by w.item
) b
where i.task_id = $1 and i.item = b.item and i.done_at is null and i.slots is null and i.exclusive is null`
)
