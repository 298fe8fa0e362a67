package engine

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// Candidates of runs that are on no shelf. A run may be putting its result on the shelf just now, so only runs
	// that ended long enough ago count. And a shelf that is not fresh may be again: when a clock that was an hour ahead is set
	// right. First the runs that have any are found, from one to the next by index: a shelf may have a million candidates, which
	// stay, and are not looked at one by one.
	removeCandidates = `
with recursive present as (
  (select c.run_id from getwork.candidate c order by c.run_id limit 1)
  union all
  select n.run_id
  from present p
  cross join lateral (select c.run_id from getwork.candidate c where c.run_id > p.run_id order by c.run_id limit 1) n
), over as materialized (
  select p.run_id
  from present p
  where exists (select from getwork.run u where u.id = p.run_id and u.finished_at < clock_timestamp() - interval '1 minute')
    and not exists (
      select from getwork.task_state s
      where s.shelf_run = p.run_id and s.fresh_until > clock_timestamp() - interval '1 day')
), old as materialized (
  select c.run_id, c.rank
  from over o
  cross join lateral (
    select c.run_id, c.rank
    from getwork.candidate c
    where c.run_id = o.run_id
    order by c.rank
    limit 5000
    for update of c skip locked
  ) c
  limit 5000
)
delete from getwork.candidate c using old where c.run_id = old.run_id and c.rank = old.rank`

	removeKeys = `
with old as materialized (
  select task_id, user_name, key
  from getwork.idempotency_key
  where created_at < clock_timestamp() - interval '24 hours'
  limit 5000
  for update skip locked
)
delete from getwork.idempotency_key k using old
where k.task_id = old.task_id and k.user_name = old.user_name and k.key = old.key`
)

// tidy removes, now and then and in small batches, what nobody will read again. Every node does; they may meet, and
// then one of them finds nothing.
func (e *Engine) tidy(ctx context.Context) error {
	var retained time.Time // when what is past its retention was last looked for
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(30*time.Second + rand.N(60*time.Second)):
		}
		for _, statement := range []string{removeCandidates, removeKeys} {
			for {
				tag, err := e.write(ctx, statement)
				if err != nil && ctx.Err() == nil {
					e.Log.Warn("remove what is old", "error", err)
				}
				if err != nil || tag.RowsAffected() < 5000 {
					break
				}
			}
		}
		if time.Since(retained) < 30*time.Minute {
			continue
		}
		retained = time.Now()
		if err := e.Retain(ctx); err != nil && ctx.Err() == nil {
			e.Log.Warn("remove what is past its retention", "error", err)
		}
	}
}
