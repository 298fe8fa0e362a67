// Package tidy removes, now and then and in small batches, rows that nobody will read again: what runs left on no shelf, old keys, and
// finished work, items, requests and absences past their retention. Every node does so. If two meet, one of them finds nothing.
package tidy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
)

// Remover removes old rows. Its fields but Sum must be set.
type Remover struct {
	DB        pg.Router
	SQL       func(string) string // puts the schema's name into a statement
	Retention time.Duration       // how long finished work and requests are kept
	Log       *slog.Logger

	Sum func(context.Context) error // sums up the hours that have ended, before what they are counted from is removed; nil: nobody asks for them

	walk workWalk
}

const (
	// Candidates of runs that are on no shelf. Only runs that ended long enough ago count, because a run may be putting its
	// result on the shelf just now. A shelf that is not fresh may be fresh again, when a clock that was an hour ahead is set
	// right, or may go on serving for up to a day (stale_for). The statement first finds the runs that have candidates, one after
	// another by index: a shelf may have a million candidates, which stay and need not be read.
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
      where s.shelf_run = p.run_id and s.fresh_until > clock_timestamp() - interval '2 days')
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

	// Where candidates were, of shelves that are all gone.
	removePlaces = `
with recursive present as (
  (select p.run_id from getwork.candidate_place p order by p.run_id limit 1)
  union all
  select n.run_id
  from present p
  cross join lateral (select n.run_id from getwork.candidate_place n where n.run_id > p.run_id order by n.run_id limit 1) n
), over as materialized (
  select p.run_id from present p where not exists (select from getwork.candidate c where c.run_id = p.run_id)
), old as materialized (
  select p.run_id, p.bucket
  from over o join getwork.candidate_place p on p.run_id = o.run_id
  limit 5000
  for update of p skip locked
)
delete from getwork.candidate_place p using old where p.run_id = old.run_id and p.bucket = old.bucket`

	// Idempotency-Keys of requests that stay. The array makes PostgreSQL look their rows up; joined to them, it may read all that there
	// are.
	removeKeys = `
with old as materialized (
  select id
  from getwork.work_requested
  where key is not null and created_at < (select clock_timestamp() - interval '24 hours')
  order by created_at
  limit 5000
  for update skip locked
)
update getwork.work_requested r set key = null, key_scope = null, key_body = null where r.id = any (array(select o.id from old o))`
)

// Run removes rows until ctx ends. It returns nil.
func (r *Remover) Run(ctx context.Context) error {
	ctx = pg.AsOwn(ctx)
	var retained time.Time // when rows past their retention were last removed
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(30*time.Second + rand.N(60*time.Second)):
		}
		r.Leftovers(ctx)
		if r.Sum != nil {
			if err := r.Sum(ctx); err != nil && ctx.Err() == nil {
				r.Log.Warn("sum up the hours", "error", err)
			}
		}
		if time.Since(retained) < 30*time.Minute {
			continue
		}
		retained = time.Now()
		if err := r.Retain(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("remove rows past their retention", "error", err)
		}
	}
}

// Leftovers removes candidates of runs that are on no shelf, and keys that are over.
func (r *Remover) Leftovers(ctx context.Context) {
	for _, statement := range []string{removeCandidates, removePlaces, removeKeys} {
		for {
			tag, err := r.write(ctx, statement)
			if err != nil && ctx.Err() == nil {
				r.Log.Warn("remove old rows", "error", err)
			}
			if err != nil || tag.RowsAffected() < 5000 {
				break
			}
		}
	}
}

// write executes one statement in a transaction of its own, at READ COMMITTED whatever the server's default is.
func (r *Remover) write(ctx context.Context, statement string, args ...any) (tag pgconn.CommandTag, err error) {
	err = r.transact(ctx, func(tx pgx.Tx) error {
		tag, err = tx.Exec(ctx, r.SQL(statement), args...)
		return err
	})
	return tag, err
}

func (r *Remover) transact(ctx context.Context, f func(pgx.Tx) error) error {
	return pg.Transact(ctx, r.DB, f)
}

// Finished rows are marked when they end, and removed here when they are older than the retention. In small batches, so that
// a batch holds its locks for milliseconds and hardly changes the tables' statistics. Rows that still block an item, bind a
// user or matter to a conflict rule are never removed. When their task was deleted longer ago than the retention, they do none of
// this any more.
const (
	// Each batch begins where the last one ended, so that rows that must stay are passed once, not in each batch. However
	// short the retention is, work that was closed since the run on the shelf or a run under way began stays, because it
	// keeps its item from being handed out of that run. Each of the two runs is looked for by its own index: in one condition they
	// would be looked for among all runs of the task. The minute is there because a closing is stamped a little before its
	// commit, and the commit is what the run did not see. Redriven work stays with an older return to others of its item: without
	// it the next attempt would count on from that return, and not be the first again.
	removeWork = `
with old as materialized (
  select w.id, w.closed_at,
    (
      (w.state in ('completed', 'returned', 'expired', 'failed', 'reassigned')
        or w.redriven_by is not null and not exists (
          select from getwork.work o
          where o.task_id = w.task_id and o.item = w.item and o.state <> 'held' and o.id < w.id and o.to_others))
      and coalesce(w.available_at < clock_timestamp() - $1::bigint * interval '1 microsecond', true) and not w.to_others
      and (w.state <> 'completed' or not exists (select from getwork.task_conflict c where c.task_id = w.task_id))
      or exists (
        select from getwork.task_state s
        where s.task_id = w.task_id and s.deleted_at < clock_timestamp() - $1::bigint * interval '1 microsecond')
    )
    and not exists (
      select from getwork.task_state s join getwork.run u on u.id = s.shelf_run
      where s.task_id = w.task_id and w.closed_at > u.started_at - interval '1 minute')
    and not exists (
      select from getwork.run u
      where u.task_id = w.task_id and u.state = 'running' and w.closed_at > u.started_at - interval '1 minute') as over
  from getwork.work w
  where w.closed_at < (select clock_timestamp() - $1::bigint * interval '1 microsecond') and (w.closed_at, w.id) > ($2, $3)
  order by w.closed_at, w.id
  limit 1000
), gone as (
  delete from getwork.work w using old
  where w.id = old.id and old.over
)
select count(*), max(closed_at), coalesce((select o.id from old o order by o.closed_at desc, o.id desc limit 1), 0) from old`

	removeItems = `
with old as materialized (
  select id from getwork.item
  where done_at < (select clock_timestamp() - $1::bigint * interval '1 microsecond')
  order by done_at
  limit 1000
  for update skip locked
)
delete from getwork.item i using old where i.id = old.id`

	// selectAbandoned selects deleted tasks of which items are left. The limit makes each a search in item_key. As a join PostgreSQL
	// could read the items of all tasks, to find none.
	selectAbandoned = `
select s.task_id
from getwork.task_state s
cross join lateral (select from getwork.item i where i.task_id = s.task_id and i.done_at is null limit 1) waiting
where s.deleted_at < (select clock_timestamp() - $1::bigint * interval '1 microsecond')`

	// removeAbandoned removes items of a deleted task that nobody finished. Each batch begins where the last one ended, because the
	// index still has what the batches before it removed.
	removeAbandoned = `
with old as materialized (
  select i.id, i.item
  from getwork.item i
  where i.task_id = $1 and i.done_at is null and i.item > $2
  order by i.item
  limit 1000
  for update skip locked
), gone as (
  delete from getwork.item i using old where i.id = old.id
)
select coalesce(max(item), '') from old`

	// Absences that are over: there are few, so all are read.
	removeAbsences = `
with old as materialized (
  select id from getwork.absence
  where ended_at < (select clock_timestamp() - $1::bigint * interval '1 microsecond')
  limit 1000
  for update skip locked
)
delete from getwork.absence a using old where a.id = old.id`

	// Ids follow time, so the old requests come first, and the walk ends at the first young one. It goes over all old ones, so it
	// is done once, and not for each batch.
	selectFirstYoung = `
select coalesce((
  select r.id from getwork.work_requested r
  where r.created_at >= (select clock_timestamp() - $1::bigint * interval '1 microsecond')
  order by r.id
  limit 1), 9223372036854775807)`

	// A request that an Idempotency-Key made stays as long as the key.
	removeRequests = `
with old as materialized (
  select r.id
  from getwork.work_requested r
  where r.id < $2
    and r.completed_at < (select clock_timestamp() - $1::bigint * interval '1 microsecond')
    and (r.key is null or r.created_at < clock_timestamp() - interval '24 hours')
  order by r.id
  limit 1000
  for update skip locked
), unbound as (
  update getwork.work w set request_id = null where w.request_id = any (array(select o.id from old o))
)
delete from getwork.work_requested r using old where r.id = old.id`
)

// Retain removes what is past its retention, and returns when nothing is left.
func (r *Remover) Retain(ctx context.Context) error {
	keep := r.Retention.Microseconds()
	if err := r.Work(ctx); err != nil {
		return err
	}
	if err := r.removeAll(ctx, removeItems, keep); err != nil {
		return err
	}
	if err := r.removeAll(ctx, removeAbsences, keep); err != nil {
		return err
	}
	if err := r.removeAllAbandoned(ctx, keep); err != nil {
		return err
	}
	var young int64
	err := r.transact(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, r.SQL(selectFirstYoung), keep).Scan(&young) })
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("look for what is past its retention: %w", err))
	}
	return r.removeAll(ctx, removeRequests, keep, young)
}

// removeAll executes a statement that removes some rows until it removes none.
func (r *Remover) removeAll(ctx context.Context, statement string, args ...any) error {
	for {
		tag, err := r.write(ctx, statement, args...)
		if err != nil {
			return fmt.Errorf("remove rows past their retention: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
	}
}

// removeAllAbandoned removes the items of inboxes that were deleted longer ago than keep, in microseconds. Nobody has seen them
// since.
func (r *Remover) removeAllAbandoned(ctx context.Context, keep int64) error {
	var tasks []int64
	err := r.transact(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, r.SQL(selectAbandoned), keep)
		if err == nil {
			tasks, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look for items of deleted tasks: %w", err)
	}
	for _, task := range tasks {
		for after := ""; ; {
			var last string
			err := r.transact(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, r.SQL(removeAbandoned), task, after).Scan(&last) })
			if err != nil {
				return fmt.Errorf("remove items of deleted tasks: %w", err)
			}
			if last == "" {
				break
			}
			after = last
		}
	}
	return nil
}

// rewalkEvery is how soon a node reads again the work that had to stay. Meanwhile a time may have passed, a run ended, or a conflict
// rule gone.
const rewalkEvery = 24 * time.Hour

// workWalk is how far the walk over closed work has come. It goes on where it ended, even if it ended by an error. If it began
// anew each time, every node would read all work that must stay, which may be millions of rows, every half hour.
type workWalk struct {
	began time.Time // zero: not yet
	after time.Time // the closed_at and id of the last work that was looked at
	last  int64
}

// Work removes work past its retention, from where the walk ended to the end.
func (r *Remover) Work(ctx context.Context) error {
	walk := &r.walk
	if time.Since(walk.began) >= rewalkEvery {
		*walk = workWalk{began: time.Now()}
	}
	for {
		var n int
		var until *time.Time
		var last int64
		err := r.transact(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, r.SQL(removeWork), r.Retention.Microseconds(), walk.after, walk.last).Scan(&n, &until, &last)
		})
		if err != nil {
			return errors.Join(ctx.Err(), fmt.Errorf("remove rows past their retention: %w", err))
		}
		if n == 0 {
			return nil
		}
		walk.after, walk.last = *until, last
	}
}
