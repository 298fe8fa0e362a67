package engine

import (
	"github.com/jackc/pgx/v5"

	"getwork/assign/plan"
	"getwork/assign/records"
)

// availabilityBase is how an item c (item, slots, exclusive) of the task $1 stands now: who holds its places, who may not have
// it, and whether it is gone. u (snapshot, seen_until) is what the run saw that ranked it, nulls if none did. It reads what
// binds the item, and of what is over the last alone.
//
// An item with one place is gone when it is held, put off or never to return. And what was closed by a transaction
// that the run did not see is not handed out from it: the query may have ranked it by what was true before. By
// transaction, not by time: a closing can be stamped before a snapshot and commit after it. Of a closing that we can
// see the transaction is older than our own snapshot's end; a newer one is of another server's life, from which the
// tables were restored. The last closing says it for all: nobody holds an item of a run's result while the query looks, so
// what it did not see closed was handed out later than what it did. Items with several places are never gone: held rows
// use places up, and what was put off or never to return binds its own user alone.
//
// What failed or ran out counts as an attempt, what was put off or taken away does not; after anything else it is the
// first. Other holders of the item, whose attempt is not over, say nothing about it.
const availabilityBase = `
cross join lateral (
  select array_agg(w.slot) filter (where w.state = 'held') as taken,
    array_agg(w.user_name) filter (where w.state = 'held') as users,
    array_agg(w.instance) filter (where w.state = 'held') as instances,
    array_agg(w.user_name) filter (where w.to_others or c.slots > 1 and w.state <> 'held') as barred,
    min(w.available_at) filter (where c.slots > 1 and ` + records.Blocks + `) as until,
    coalesce(bool_or(c.slots = 1 and ` + records.Blocks + `), false) as bound
  from getwork.work w
  where w.task_id = $1 and w.item = c.item and ` + records.Binding + `
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

// busy tells whether another member of its group is held; "limit 1" has it looked up for an item, instead of hashing all
// that is held.
const busy = `c.exclusive is not null and coalesce((
    select true from getwork.work w where w.task_id = $1 and w.exclusive = c.exclusive and w.state = 'held' limit 1), false) as busy`

// completedBy are the users who have completed the item c of the task t.id, each found behind the one before: somebody may
// have done so very often.
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
	// availability is availabilityBase, and who has a say in the tasks $2 that $1 conflicts with.
	availability = availabilityBase + `
cross join lateral (
  select case when $2::bigint[] <> '{}' then array(
    select w.user_name from getwork.work w where w.task_id = any($2::bigint[]) and w.item = c.item and w.state = 'held'
    union all
    select d.user_name from unnest($2::bigint[]) t (id) cross join lateral ` + completedBy + ` d) end as elsewhere, ` + busy + `
) eyes`

	// availabilityUnconflicted is the same of a task that conflicts with none. To have the other ready costs a few hundredths of a click.
	availabilityUnconflicted = availabilityBase + `
cross join lateral (select null::text[] as elsewhere, ` + busy + `) eyes`
)

const availabilityColumns = `c.slots, c.exclusive, st.attempt, st.taken, st.users, st.instances, st.barred, eyes.elsewhere, eyes.busy`

// nothingSeen is u of items that no run ranked.
const nothingSeen = `cross join (select null::pg_snapshot as snapshot, null::timestamptz as seen_until) u`

// scanAvailability reads into, and then availabilityColumns.
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
