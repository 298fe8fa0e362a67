package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/records"
)

// errElsewhere says that an earlier run of the task still executes on the query database.
var errElsewhere = errors.New("an earlier run of this query still executes on the query database")

const (
	// QueryLock is the advisory lock that keeps a second run of a task off the query database.
	QueryLock = `select pg_try_advisory_xact_lock($1::integer, $2::integer)`

	// seenHere and seenThere bound what a query sees that begins now on the query database. The primary is asked first: nothing that
	// commits there later was seen, whatever its clock shows by then. A replica has not yet replayed some of what is older. Five
	// seconds allow for differences between clocks.
	seenHere  = `select pg_current_snapshot()::text, clock_timestamp() - interval '5 seconds'`
	seenThere = `
select case when pg_is_in_recovery() then coalesce(pg_last_xact_replay_timestamp(), 'epoch') else clock_timestamp() end
  - interval '5 seconds'`
)

// Seen returns what a query that begins after it in tx, on the query database, has seen for certain: closings that the primary's
// snapshot shows and that were stamped by that time. Each alone would not do: a replica lags behind the snapshot, and a closing
// after the primary's clock was set back is stamped with an earlier time.
func (q *Ranker) Seen(ctx context.Context, tx pgx.Tx) (snapshot *string, until *time.Time, err error) {
	var bound time.Time
	snapshot, until = new(string), new(time.Time)
	if err := q.DB.QueryRow(ctx, seenHere).Scan(snapshot, &bound); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errOurs, err)
	}
	if err := tx.QueryRow(ctx, seenThere).Scan(until); err != nil {
		return nil, nil, err
	}
	if until.After(bound) { // the other server's clock is or was ahead
		*until = bound
	}
	return snapshot, until, nil
}

// BlockedItems finds the items that are blocked, and those that were closed after the query's time, which must not be
// handed out from this run. For an item that nobody holds, its last closing decides. Each item is looked up by itself: as
// a join, PostgreSQL reads all work for each chunk until there are some hundred thousand rows. "between" is as in LastOf.
// A key that is too long in the encoding of this database is no item: recording it would fail. Items that are full, or whose
// group is busy, are found too, with false as the second column: as in a wrapped query, they stay, but must not cut off free ones.
var BlockedItems = `
select item, gone
from (
  select c.item, (octet_length(c.item) > 200 or octet_length(c.exclusive) > 200 or c.slots = 1 and (
      (select true from getwork.blocked b where b.task_id = $1 and b.item between c.item and c.item limit 1)
      or (select w.closed_at from getwork.work w where w.task_id = $1 and ` + records.LastOf + ` and w.state <> 'held' ` + records.NewestFirst + `) > $3)
    ) is true as gone,
    ` + fmt.Sprintf(fullNow, "$1") + ` as full_now
  from unnest($2::text[], $4::text[], $5::integer[]) c (item, exclusive, slots)
  offset 0
) marked
where gone or full_now`

// endStuck ends the backend that holds a QueryLock for longer than the query's time-out. Its run has lost the run lock, since
// another has it. The node that froze while it received the rows never reads on, and no time-out of PostgreSQL's ends a
// backend that waits for its client.
const endStuck = `
select pg_terminate_backend(l.pid)
from pg_locks l
join pg_stat_activity a on a.pid = l.pid and a.usename = current_user and a.xact_start < clock_timestamp() - $3 * interval '1 microsecond'
where l.locktype = 'advisory' and l.database = (select oid from pg_database where datname = current_database())
  and (l.classid::bigint, l.objid::bigint, l.objsubid) = ($1::bigint, $2::bigint, 2) and l.granted and l.pid <> pg_backend_pid()`

// rankThere runs the query on the query database, in a transaction that first takes an advisory lock. If the lock is taken, a
// run whose node died still executes there, and no second one starts beside it. Meanwhile the run lock's connection is
// checked every few seconds. If it is lost, so is the run lock, and the run is given up.
func (q *Ranker) rankThere(ctx context.Context, lock pgx.Tx, task int64, s assign.Settings) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := make(chan struct{})
	go func() {
		defer close(alive)
		keepAlive(ctx, lock, cancel)
	}()
	var found Result
	began := time.Now()
	err := q.overThere(ctx, func(tx pgx.Tx) error {
		var free bool
		if err := tx.QueryRow(ctx, QueryLock, q.QueryLockClass(), int32(task)).Scan(&free); err != nil {
			return err
		}
		if !free {
			// If this fails, for example because the former run had another login, the next run tries again.
			_, _ = tx.Exec(ctx, endStuck, int64(uint32(q.QueryLockClass())), task&math.MaxUint32, s.QueryTimeout)
			return errElsewhere
		}
		if err := q.admitRun(ctx, tx, s); err != nil {
			return err
		}
		var err error
		// The server's statement_timeout applies to each statement separately.
		limited, done := untilTimeout(ctx, s.QueryTimeout)
		defer done()
		if _, err := tx.Exec(limited, "savepoint ranking"); err != nil { // see enterAgain
			return err
		}
		if found, err = q.Stream(limited, tx, task, s); err == nil {
			err = q.recheckResult(limited, tx, task, s, &found)
		}
		return cmp.Or(lateness(limited, err), err)
	})
	cause := context.Cause(ctx)
	cancel(nil)
	<-alive
	if err != nil && cause != nil {
		return Result{}, cause
	}
	return found, FaultOf(err, time.Since(began), s.QueryTimeout)
}

func (q *Ranker) overThere(ctx context.Context, f func(pgx.Tx) error) error {
	conn, err := q.Queries.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return q.inQuery(ctx, conn.Conn(), f)
}

// QueryLockClass is the first key of QueryLock; it differs between installations that share a query database.
func (q *Ranker) QueryLockClass() int32 {
	h := fnv.New32a()
	h.Write([]byte("getwork run " + q.Channel))
	return int32(h.Sum32())
}

// keepAlive checks the run lock's connection until ctx ends. Nobody else may use it meanwhile.
func keepAlive(ctx context.Context, lock pgx.Tx, lost context.CancelCauseFunc) {
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// Not under ctx: cancelling a running statement would lose the lock.
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

// Stream reads the ranked rows in tx, on the query database, and asks the primary which of their items are blocked, until it has one
// more than max_candidates or no rows are left. The counts cover the rows that were read. It returns with the query ended; if there were
// more rows or an error, the transaction can only go back to a savepoint.
func (q *Ranker) Stream(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings) (Result, error) {
	found := Result{Seen: newKeySet()}
	var err error
	if found.Snapshot, found.SeenUntil, err = q.Seen(ctx, tx); err != nil {
		return Result{}, err
	}
	if _, err := tx.Exec(ctx, "set local idle_in_transaction_session_timeout = '20s'; "+limitStatements(s.QueryTimeout)); err != nil {
		return Result{}, err
	}
	rows, end, err := q.begin(ctx, tx, task, s)
	if err != nil {
		return Result{}, err
	}
	defer end() // the rows that nobody needs are not read
	r := reader{q: q, rows: rows, most: s.MaxCandidates, found: found}
	for more := true; more && !r.found.Cut; {
		var chunk []Candidate
		if chunk, more, err = r.chunk(); err != nil {
			return Result{}, err
		}
		if chunk, err = r.dropBlocked(ctx, task, chunk); err != nil {
			return Result{}, err
		}
		if err := r.keep(chunk); err != nil {
			return Result{}, err
		}
	}
	return r.result(), nil
}

func (r *reader) dropBlocked(ctx context.Context, task int64, chunk []Candidate) ([]Candidate, error) {
	if len(chunk) == 0 {
		return nil, nil
	}
	items, exclusives, slots := make([]string, len(chunk)), make([]*string, len(chunk)), make([]int, len(chunk))
	var all, kept int64
	for i, c := range chunk {
		items[i], exclusives[i], slots[i] = c.Item, c.Exclusive, c.Slots
		all += sizeOf(c)
	}
	// Planned each time: a plan that was made while there was no work would read all of it for each item.
	rows, err := r.q.DB.Query(ctx, r.q.SQL(BlockedItems), pgx.QueryExecModeExec, task, items, r.found.SeenUntil, exclusives, slots)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOurs, err)
	}
	marked := map[string]bool{} // whether the item is gone; otherwise it is full
	var item string
	var gone bool
	if _, err := pgx.ForEachRow(rows, []any{&item, &gone}, func() error { marked[item] = gone; return nil }); err != nil {
		return nil, fmt.Errorf("%w: %w", errOurs, err)
	}
	free := chunk[:0]
	for _, c := range chunk {
		gone, found := marked[c.Item]
		if gone {
			r.found.Blocked++
			if !r.differ {
				r.found.Seen.remove(c.Item) // there may be millions, and the next statement finds them again
			}
			continue
		}
		c.full = found
		free = append(free, c)
		kept += sizeOf(c)
	}
	if kept < all/2 {
		for i := range free { // so that they don't keep the text of all others in memory
			free[i].Item, free[i].Details = strings.Clone(free[i].Item), strings.Clone(free[i].Details)
		}
	}
	return free, nil
}
