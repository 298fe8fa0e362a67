package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
)

// SlotWait bounds how long somebody who wants to look at a query's result waits for a place to run it.
const SlotWait = 20 * time.Second

// InTx calls f in a transaction in which a ranking query can be looked at without a run: where queries run, read
// only, with the query role's rights, each statement limited to timeout, and with a place of the node's, for which it
// waits so long. It is rolled back in the end. What is the query's own fault, its time-out included, is [QueryRefused].
func (q *Ranker) InTx(ctx context.Context, wait time.Duration, timeout assign.Duration, f func(ctx context.Context, tx pgx.Tx) error) error {
	return q.WithSlot(ctx, wait, func(ctx context.Context) error {
		pool := q.Runs
		if q.Queries != nil {
			pool = q.Queries
		}
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return cmp.Or(context.Cause(ctx), fmt.Errorf("get a connection to run: %w", err))
		}
		defer conn.Release()
		limit := bounded
		if q.Queries != nil { // rows are fetched in chunks there, and the server's limit counts for each anew
			limit = untilTimeout
		}
		ctx, done := limit(ctx, timeout)
		defer done()
		began := time.Now()
		err = q.enter(ctx, conn, timeout, f)
		var refusal *assign.Refusal
		if err == nil || errors.As(err, &refusal) {
			return err
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		var fault *ErrQuery
		if !errors.As(err, &fault) {
			err = FaultOf(err, time.Since(began), timeout)
		}
		if errors.As(err, &fault) {
			return queryRefusal("query", "%s", fault.Message)
		}
		return err
	})
}

// enter begins the transaction, makes it fit for somebody's query, and rolls it back after f.
func (q *Ranker) enter(ctx context.Context, conn *pgxpool.Conn, timeout assign.Duration, f func(ctx context.Context, tx pgx.Tx) error) error {
	settings := limitStatements(timeout) // that login has its own rights
	if q.Queries == nil {
		settings = q.enterQuery(timeout)
		settings += q.Watch.Setting(ctx) // so that the query of a node that died ends soon, as a run's does
	}
	return q.inQuery(ctx, conn.Conn(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, settings+"; savepoint entered"); err != nil {
			return fmt.Errorf("enter the query: %w", err)
		}
		began := time.Now()
		err := f(ctx, tx)
		if !pg.Cancelled(err) || timedOut(time.Since(began), timeout) || ctx.Err() != nil {
			return err
		}
		if _, back := tx.Exec(ctx, "rollback to savepoint entered"); back == nil && leapt(ctx, tx, timeout) {
			return assign.Refuse(assign.Unavailable, "%v; try again", errLeapt)
		}
		return err
	})
}

// errLeapt: a query was ended by its time-out before its time, which is no fault of its own.
var errLeapt = errors.New("the database's clock was set forward while the query ran, and its time-out ended it")

// leapt reports whether the clock leapt over a query's time-out: then PostgreSQL ends the query as soon as any of its timers
// fires, and one does soon, which looks after the client. Since the transaction began the time-out has passed by the clock,
// though not by ours; of a statement that somebody cancelled it has by neither. It is asked at a savepoint before the query.
func leapt(ctx context.Context, tx pgx.Tx, timeout assign.Duration) bool {
	const passed = `select clock_timestamp() - now() >= $1 * interval '1 microsecond'`
	var is bool
	return tx.QueryRow(ctx, passed, timeout).Scan(&is) == nil && is
}

// timedOut reports whether a query that took so long has used up its time. No two machines' clocks are equally fast: to this
// node's, one that the server ended for its time-out may have taken a little less.
func timedOut(took time.Duration, timeout assign.Duration) bool {
	return took >= time.Duration(timeout)/100*99
}
