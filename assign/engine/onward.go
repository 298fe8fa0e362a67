package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/records"
)

// A task may send a share of what is completed on to the inbox of another, in the transaction that completes it, so that neither is
// there without the other. Whether an item is drawn follows from the id of its work: nobody can draw again. If several people complete
// the item, it is drawn with the completion that finishes it. Tasks don't lead back to themselves, so of two transactions that each
// complete what the other pushes one waits for the other, and not both.

// onward is where a completion goes on to, as its task's version has it.
type onward struct {
	assign.OnComplete
	To int64 `json:"task_id"`
}

// insertOnward inserts the items of the completed work from into the inboxes to, whose order of keys is that of every push. An item that
// is open there stays as it is, and so does the inbox of a task that was deleted meanwhile.
const insertOnward = `
with present as materialized (
  select s.task_id, s.version from getwork.task_state s where s.task_id = any($2::bigint[]) and s.deleted_at is null for key share
), drawn as (
  select d.task_id, w.id, w.item, coalesce(w.closed_by, w.user_name) as by, case when octet_length(w.details::text) < 65000 then
    (select json_object_agg(m.key, m.value order by m.n) from (
      select m.key, m.value, m.n from json_each(w.details) with ordinality m (key, value, n) where m.key <> 'from'
      union all
      select 'from', to_json(w.id::text), 1000000) m)
    else json_build_object('from', w.id::text) end as details
  from unnest($1::bigint[], $2::bigint[]) d (work, task_id)
  join getwork.work w on w.id = d.work
)
insert into getwork.item (task_id, item, details, pushed_by, from_work)
select p.task_id, d.item, d.details, d.by, d.id
from drawn d
join present p on p.task_id = d.task_id
join getwork.task_version v on v.task_id = p.task_id and v.version = p.version
where not exists (
  select from ` + records.Binding + ` w
  where w.task_id = d.task_id and w.item = d.item
    and (w.state = 'held' or v.slots = 1 and coalesce(v.done_by, 1) = 1 and ` + records.Blocks + `))
order by d.task_id, d.item collate "C", d.id
on conflict (task_id, item) where done_at is null do nothing
returning task_id`

// pushOnward pushes completed work's items on to the inboxes to, in the transaction that completes it, and returns those that have got any.
func (e *Engine) pushOnward(ctx context.Context, tx pgx.Tx, from, to []int64) ([]int64, error) {
	rows, err := tx.Query(ctx, e.SQL(insertOnward), from, to)
	if err == nil {
		to, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return nil, fmt.Errorf("push what was completed on: %w", err)
	}
	return to, nil
}

// pushedOnward announces what pushOnward has pushed, after its commit.
func (e *Engine) pushedOnward(to []int64) {
	for i, task := range to {
		if i == 0 || to[i-1] != task {
			e.Announce.Items(task)
			e.WakeLingering(task)
		}
	}
}
