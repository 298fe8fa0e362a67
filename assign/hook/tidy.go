package hook

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
)

const keepDelivered = 7 * 24 * time.Hour

const (
	// If a node is sending it just now and it is delivered after all, that still counts.
	buryEvents = `
with old as materialized (
  select id from getwork.hook_event
  where state = 'waiting' and since < (select clock_timestamp()) - $1::bigint * interval '1 microsecond'
  order by since
  limit 1000
  for update skip locked
)
update getwork.hook_event e set state = 'dead', ended_at = clock_timestamp() from old where e.id = old.id`

	removeEvents = `
with old as materialized (
  select id from getwork.hook_event
  where state = $1 and state <> 'waiting' and ended_at < (select clock_timestamp()) - $2::bigint * interval '1 microsecond'
  limit 1000
  for update skip locked
)
delete from getwork.hook_event e using old where e.id = old.id`

	// Of hooks that were deleted. It goes from one hook to the next, by index.
	removeOrphans = `
with recursive present as (
  (select e.hook_id from getwork.hook_event e order by e.hook_id limit 1)
  union all
  select n.hook_id
  from present p
  cross join lateral (select e.hook_id from getwork.hook_event e where e.hook_id > p.hook_id order by e.hook_id limit 1) n
), old as materialized (
  select e.id
  from present p
  cross join lateral (select e.id from getwork.hook_event e where e.hook_id = p.hook_id order by e.id limit 1000 for update of e skip locked) e
  where not exists (select from getwork.hook h where h.id = p.hook_id)
  limit 1000
)
delete from getwork.hook_event e using old where e.id = old.id`

	oldestEvent = `
select greatest(0, extract(epoch from clock_timestamp() - (select min(since) from getwork.hook_event where state = 'waiting')))::float8`
)

// runTidy tidies from time to time. Sending doesn't wait for it: millions of old events take a while.
func (s *Sender) runTidy(ctx context.Context) {
	for {
		s.warn(ctx, s.tidy(ctx))
		select {
		case <-ctx.Done():
			return
		case <-time.After(15 * time.Second):
		}
	}
}

// tidy tells of alerts, gives up what was not delivered in time, removes what was over long ago, and reads how long the oldest event has waited.
func (s *Sender) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	switch used, err := s.used(ctx); {
	case err != nil:
		return err
	case !used:
		s.Oldest.Store(0)
		return nil
	}
	if err := s.tellAlerts(ctx); err != nil {
		return err
	}
	buried, err := s.repeat(ctx, buryEvents, giveUp.Microseconds())
	if err != nil {
		return fmt.Errorf("give up events that were not delivered: %w", err)
	}
	if buried > 0 {
		s.Dead.Add(buried)
		s.Log.Warn("events were not delivered within three days; send them again with getwork webhook redrive", "events", buried)
	}
	for state, keep := range map[string]time.Duration{"delivered": min(keepDelivered, s.Retention), "dead": s.Retention} {
		if _, err := s.repeat(ctx, removeEvents, state, keep.Microseconds()); err != nil {
			return fmt.Errorf("remove old events: %w", err)
		}
	}
	if _, err := s.repeat(ctx, removeOrphans); err != nil {
		return fmt.Errorf("remove events of deleted web hooks: %w", err)
	}
	var oldest float64
	if err := s.DB.QueryRow(ctx, s.sql(oldestEvent)).Scan(&oldest); err != nil {
		return fmt.Errorf("read the oldest event: %w", err)
	}
	s.Oldest.Store(int64(oldest * float64(time.Second)))
	return nil
}

// repeat executes a statement that changes a part of the rows, in small batches, as the engine's, until none is left.
func (s *Sender) repeat(ctx context.Context, statement string, args ...any) (all int64, err error) {
	for n := int64(1); n > 0 && err == nil; all += n {
		err = pg.Transact(ctx, s.DB, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, s.sql(statement), args...)
			n = tag.RowsAffected()
			return err
		})
	}
	return all, err
}
