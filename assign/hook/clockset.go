package hook

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
)

// The database's clock may be set back, and then what is due at a time of the former clock would stand still for as long as it was
// set back. So each such time that is further ahead than it can have been written is moved. All nodes do that, and what one has moved
// or written since is no longer too far ahead for the next.
const (
	// An event that no node has begun to send is due when it is recorded.
	healRecorded = `
with late as materialized (
  select id from getwork.hook_event
  where state = 'waiting' and since > (select clock_timestamp())
  order by since
  limit 1000
  for update
)
update getwork.hook_event e
set since = clock_timestamp(), next_at = case when e.attempts = 0 then least(e.next_at, clock_timestamp()) else e.next_at end
from late where e.id = late.id`

	// An attempt may be under way at another node, and nothing tells it from a back-off. It has ended when a lease is over. Were
	// the event due before that, it could be sent twice at once, and be overtaken by the next one of its item. Nor does anything tell
	// the former clock's back-off from one of this clock, unless it is longer than that can be: so an event that has failed may wait for as
	// long as its back-off can be.
	healAttempted = `
with late as materialized (
  select e.id
  from getwork.hook h
  cross join lateral (
    select e.id
    from getwork.hook_event e
    where e.hook_id = h.id and e.state = 'waiting' and e.attempts > 0
      and e.next_at > (select clock_timestamp()) + $2::bigint * interval '1 microsecond'
      and e.next_at > (select clock_timestamp()) + ` + backOff + ` * 1.2
    order by e.next_at
    limit 1000
    for update
  ) e
  limit 1000
)
update getwork.hook_event e set next_at = clock_timestamp() + $1::bigint * interval '1 microsecond' from late where e.id = late.id`

	// failures stays, so the hook is tried with one event.
	healHooks = `update getwork.hook set retry_at = clock_timestamp() where retry_at > clock_timestamp() + $1::bigint * interval '1 microsecond'`
)

const (
	longestWait    = time.Minute                  // of a hook after a failure, unless its receiver asks for more
	longestBackOff = 9*time.Hour + 36*time.Minute // of an event that failed, a fifth more than backOff can be
)

// heal makes due what the database's clock has delayed, if it was set back since the last look. at is what it shows now. The first look
// can't know, so it leaves a hook for as long as its receiver may have asked, unless an event shows that the clock was set back. If the
// clock was set back, a receiver that asked for more than a minute gets one attempt too early from each node.
func (s *Sender) heal(ctx context.Context, at time.Time) error {
	back := at.Before(s.at)
	if !back && !s.at.IsZero() {
		s.at = at
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lease/2)
	defer cancel()
	recorded, err := s.repeat(ctx, healRecorded)
	var attempted, hooks int64
	if err == nil {
		attempted, err = s.repeat(ctx, healAttempted, lease.Microseconds(), lease.Microseconds())
	}
	if err == nil {
		most := longestRetryAfter
		if back || recorded+attempted > 0 {
			most = longestWait
		}
		hooks, err = s.change(ctx, healHooks, most.Microseconds())
	}
	if recorded+attempted+hooks > 0 {
		s.Log.Warn("the database's clock was set back; what that delayed of web hooks is sent within half a minute, or when a back-off is over",
			"events", recorded+attempted, "hooks", hooks)
	}
	if err != nil {
		return fmt.Errorf("heal a clock that was set back: %w", err) // the next look tries again
	}
	s.at = at
	return nil
}

// healLate is for transactions that began before the clock was set back, and committed after heal. Nobody knows of them, so tidy
// repeats it. Of events that were begun it reads by index only those that are further ahead than any back-off.
func (s *Sender) healLate(ctx context.Context) error {
	_, err := s.repeat(ctx, healRecorded)
	if err == nil {
		_, err = s.repeat(ctx, healAttempted, lease.Microseconds(), longestBackOff.Microseconds())
	}
	if err == nil {
		_, err = s.change(ctx, healHooks, longestRetryAfter.Microseconds())
	}
	if err != nil {
		return fmt.Errorf("find events of a time to come: %w", err)
	}
	return nil
}

// change executes a statement in a transaction, and returns how many rows it changed.
func (s *Sender) change(ctx context.Context, statement string, args ...any) (n int64, err error) {
	err = pg.Transact(ctx, s.DB, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.sql(statement), args...)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}

// repeat executes a statement that changes a part of the rows, in small batches, as the engine's, until none is left.
func (s *Sender) repeat(ctx context.Context, statement string, args ...any) (all int64, err error) {
	for n := int64(1); n > 0 && err == nil; all += n {
		n, err = s.change(ctx, statement, args...)
	}
	return all, err
}
