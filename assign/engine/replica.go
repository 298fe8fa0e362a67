package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/records"
)

// errElsewhere: a former run of the task still executes where queries run.
var errElsewhere = errors.New("a former run of this query still executes on the query database")

const (
	queryLock = `select pg_try_advisory_xact_lock($1::integer, $2::integer)`

	// Nothing of our schema is named here: a replica may be behind, and a login may be allowed the bank's tables only.
	rankingHead = `
select item, getwork_rows.slots, getwork_rows.exclusive, ` + rowDetails + `
from (values (null::integer, null::text)) getwork_defaults (slots, exclusive)
cross join lateral (` + rowsHead
	rankingTail = rowsTail + `) getwork_rows`

	// Closings are in the primary's order; what is not replayed yet was not seen. Five seconds allow for clocks.
	seenUntil = `
select case when pg_is_in_recovery() then coalesce(pg_last_xact_replay_timestamp(), 'epoch') else clock_timestamp() end
  - interval '5 seconds'`

	// What was closed since the query began must not be stamped with a time before that, more than the five seconds.
	setBackSince = `select clock_timestamp() < $1::timestamptz + $2 * interval '1 microsecond' - interval '5 seconds'`

	// And what was closed after the query's time: it could not be handed out from this run. Of what nobody holds the last
	// closing says so.
	blockedItems = `
select item from getwork.blocked where task_id = $1 and item = any($2::text[])
union
select c.item
from unnest($2::text[]) c (item)
cross join lateral (select w.closed_at from getwork.work w where w.task_id = $1 and ` + lastOf + ` and w.state <> 'held' ` + newestFirst + `) last
where last.closed_at > $3`
)

// wasSetBack reports whether the primary's clock was, since the query began.
func (r *result) wasSetBack(ctx context.Context, tx pgx.Tx) (back bool, err error) {
	if r.seenUntil == nil {
		return false, nil
	}
	if err := tx.QueryRow(ctx, setBackSince, r.clock, time.Since(r.began).Microseconds()).Scan(&back); err != nil {
		return false, fmt.Errorf("read the clock: %w", err)
	}
	return back, nil
}

const fetchRows = 1000

// errSetBack: of what was closed since the query began nobody can tell whether it has seen that.
var errSetBack = errors.New("the database's clock was set back while the query ran elsewhere")

// ranking is the statement for a query that runs elsewhere: all of its rows, as they come.
func ranking(query assign.Query, slots int) string {
	return fmt.Sprintf(rankingHead, slots) + query.Trimmed() + rankingTail
}

// rankThere runs the query on the query database, in a transaction that first takes an advisory lock: if it is
// taken, a run whose node died still executes there, and no second one starts beside it. Meanwhile the run lock's
// connection is asked for a sign of life every few seconds; when it is lost, so is the run.
func (e *Engine) rankThere(ctx context.Context, lock pgx.Tx, task int64, s assign.Settings) (result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := make(chan struct{})
	go func() {
		defer close(alive)
		keepAlive(ctx, lock, cancel)
	}()
	var found result
	began := time.Now()
	err := e.overThere(ctx, func(tx pgx.Tx) error {
		var free bool
		if err := tx.QueryRow(ctx, queryLock, e.queryLockClass(), int32(task)).Scan(&free); err != nil {
			return err
		}
		if !free {
			return errElsewhere
		}
		var err error
		// The server's statement_timeout counts for each fetch anew.
		limited, done := untilTimeout(ctx, s.QueryTimeout)
		defer done()
		if _, err := tx.Exec(limited, "savepoint ranking"); err != nil { // see enterAgain
			return err
		}
		if found, err = e.stream(limited, tx, task, s); err == nil {
			err = e.recheckResult(limited, tx, task, s, &found)
		}
		return cmp.Or(lateness(limited, err), err)
	})
	cause := context.Cause(ctx)
	cancel(nil)
	<-alive
	if err != nil && cause != nil {
		return result{}, cause
	}
	return found, faultOf(err, time.Since(began), s.QueryTimeout)
}

func (e *Engine) overThere(ctx context.Context, f func(pgx.Tx) error) error {
	conn, err := e.Queries.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return e.inQuery(ctx, conn.Conn(), f)
}

func (e *Engine) queryLockClass() int32 {
	h := fnv.New32a()
	h.Write([]byte("getwork run " + e.Channel))
	return int32(h.Sum32())
}

// keepAlive asks until ctx ends. The tx is its alone meanwhile.
func keepAlive(ctx context.Context, lock pgx.Tx, lost context.CancelCauseFunc) {
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// Not under ctx: cancelling a statement half way would cost the lock.
			ask, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			_, err := lock.Exec(ask, "select 1")
			done()
			if err != nil {
				lost(fmt.Errorf("the run lock's connection was lost: %w", err))
				return
			}
		}
	}
}

// stream reads the ranked rows in chunks, and asks the primary which of their items are blocked, until there are
// one more than max_candidates or no more rows. The counts cover the rows that were read.
func (e *Engine) stream(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings) (result, error) {
	found := result{seenUntil: new(time.Time)}
	if err := e.api.QueryRow(ctx, records.SelectClock).Scan(&found.clock); err != nil {
		return result{}, fmt.Errorf("%w: %w", errOurs, err)
	}
	found.began = time.Now()
	if err := tx.QueryRow(ctx, seenUntil).Scan(found.seenUntil); err != nil {
		return result{}, err
	}
	if bound := found.clock.Add(-5 * time.Second); found.seenUntil.After(bound) { // by a clock that is ahead, or was
		*found.seenUntil = bound
	}
	const settings = "set local cursor_tuple_fraction = 1; set local idle_in_transaction_session_timeout = '20s'; "
	if _, err := tx.Exec(ctx, settings+limitStatements(s.QueryTimeout)); err != nil {
		return result{}, err
	}
	if _, err := tx.Exec(ctx, "declare ranked no scroll cursor for"+ranking(s.Query, s.Slots), pgx.QueryExecModeExec); err != nil {
		return result{}, err
	}
	found.seen = map[string]bool{}
	for !found.cut {
		chunk, read, err := e.fetch(ctx, tx, &found)
		if err != nil {
			return result{}, err
		}
		if chunk, err = e.dropBlocked(ctx, task, chunk, &found); err != nil {
			return result{}, err
		}
		for _, r := range chunk { // not what is blocked: of that there may be millions, and the next look-up finds it again
			found.seen[r.item] = true
		}
		found.items = append(found.items, chunk...)
		if len(found.items) > s.MaxCandidates {
			found.items, found.cut = found.items[:s.MaxCandidates], true
		}
		if read < fetchRows {
			return found, nil
		}
	}
	return found, nil
}

// fetch reads one chunk, without what can't be an item or was there before.
func (e *Engine) fetch(ctx context.Context, tx pgx.Tx, found *result) (chunk []ranked, read int, err error) {
	rows, err := tx.Query(ctx, fmt.Sprintf("fetch %d from ranked", fetchRows), pgx.QueryExecModeExec)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	here := make(map[string]bool, fetchRows)
	for rows.Next() {
		var item *string
		var r ranked
		if err := rows.Scan(&item, &r.slots, &r.exclusive, &r.details); err != nil {
			return nil, 0, err
		}
		read++
		found.given++
		if item == nil || *item == "" || !usableKeys(*item, r.exclusive) || found.seen[*item] || here[*item] || r.slots < 1 || r.exclusive != nil && r.slots > 1 {
			found.passedOver++
			continue
		}
		here[*item] = true
		r.rank, r.item, r.details = found.given, *item, detailsOf(r.details)
		chunk = append(chunk, r)
	}
	return chunk, read, rows.Err()
}

func (e *Engine) dropBlocked(ctx context.Context, task int64, chunk []ranked, found *result) ([]ranked, error) {
	if len(chunk) == 0 {
		return nil, nil
	}
	var items []string
	for _, r := range chunk {
		if r.slots == 1 { // how many places of the others are left is seen when they are handed out
			items = append(items, r.item)
		}
	}
	rows, err := e.api.Query(ctx, e.SQL(blockedItems), task, items, found.seenUntil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOurs, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOurs, err)
	}
	blocked := make(map[string]bool, len(names))
	for _, n := range names {
		blocked[n] = true
	}
	free := chunk[:0]
	for _, r := range chunk {
		if blocked[r.item] {
			found.blocked++
			continue
		}
		free = append(free, r)
	}
	return free, nil
}
