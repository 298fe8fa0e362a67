package assign

import (
	"github.com/jackc/pgx/v5"

	"getwork/assign/plan"
)

// standing is how an item c (item, slots, exclusive) of the task $1 stands now: who holds its places, who may not have
// it, and whether it is gone. u (snapshot, seen_until) is what the run saw that ranked it, nulls if none did; $2 are the
// tasks that $1 conflicts with.
//
// An item with one place is gone when it is held, put off or never to return. And what was closed by a transaction
// that the run did not see is not handed out from it: the query may have ranked it by what was true before. By
// transaction, not by time: a closing can be stamped before a snapshot and commit after it. Of a closing that we can
// see the transaction is older than our own snapshot's end; a newer one is of another server's life, from which the
// tables were restored. Items with several places are never gone: held rows use places up, and what was put off or
// never to return binds its own user alone.
//
// "limit 1" has whether a group is busy looked up for an item, instead of hashing all that is held.
//
// What failed or ran out counts as an attempt, what was put off or taken away does not; after anything else it is the
// first. Other holders of the item, whose attempt is not over, say nothing about it.
const standing = `
cross join lateral (
  select array_agg(w.slot) filter (where w.state = 'held') as taken,
    array_agg(w.user_name) filter (where w.state = 'held') as users,
    array_agg(w.instance) filter (where w.state = 'held') as instances,
    array_agg(w.user_name) filter (where w.to_others or c.slots > 1 and w.state <> 'held' and b.blocks) as barred,
    min(w.available_at) filter (where c.slots > 1 and b.blocks) as until,
    coalesce((array_agg(case when w.state in ('failed', 'expired') then w.attempt + 1 when w.state in ('returned', 'reassigned') then w.attempt end
      order by w.id desc) filter (where w.state <> 'held'))[1], 1) as attempt,
    coalesce(bool_or(c.slots = 1 and (b.blocks
      or not pg_visible_in_snapshot(w.closed_xid, u.snapshot) and w.closed_xid < pg_snapshot_xmax(pg_current_snapshot())
      or w.closed_at > u.seen_until)), false) as gone
  from getwork.work w
  cross join lateral (
    select w.state in ('held', 'never', 'returned', 'failed') and (w.available_at is null or w.available_at > clock_timestamp()) as blocks
  ) b
  where w.task_id = $1 and w.item = c.item
) st
cross join lateral (
  select case when $2::bigint[] <> '{}' then array(
    select w.user_name from getwork.work w
    where w.task_id = any($2::bigint[]) and w.item = c.item and w.state in ('held', 'completed')) end as elsewhere,
  c.exclusive is not null and coalesce((
    select true from getwork.work w where w.task_id = $1 and w.exclusive = c.exclusive and w.state = 'held' limit 1), false) as busy
) eyes`

const standingColumns = `c.slots, c.exclusive, st.attempt, st.taken, st.users, st.instances, st.barred, eyes.elsewhere, eyes.busy`

// nothingSeen is u of items that no run ranked.
const nothingSeen = `cross join (select null::pg_snapshot as snapshot, null::timestamptz as seen_until) u`

// scanStanding reads into, and then standingColumns.
func scanStanding(row pgx.CollectableRow, o *offer, into ...any) error {
	var users, instances []string
	err := row.Scan(append(into, &o.slots, &o.exclusive, &o.attempt, &o.Taken, &users, &instances, &o.Barred, &o.elsewhere, &o.Busy)...)
	for i := range users {
		o.Holders = append(o.Holders, plan.Holder{User: users[i], Instance: instances[i]})
	}
	o.Barred = append(o.Barred, o.elsewhere...)
	o.Slots = o.slots
	if o.exclusive != nil {
		o.Exclusive = *o.exclusive
	}
	return err
}
