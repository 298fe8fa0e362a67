package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
)

// SlotWait is the longest time that a preview, an explanation or a claim waits for a run slot.
const SlotWait = 20 * time.Second

// InTx calls f, which executes a task's query or its recheck, in a transaction for user SQL outside of a run: on the connection
// where queries run, read only, with the query role's rights, each statement limited to the query_timeout, and with one of the
// node's run slots, for which it waits at most as long as wait. The transaction is rolled back in the end. An error of the
// query itself, its time-out included, becomes [assign.QueryRefused]. field says which of the two f executes: "query" or
// "recheck". If it names a function that it must not call, f is not called.
func (q *Ranker) InTx(ctx context.Context, wait time.Duration, s assign.Settings, field string, f func(ctx context.Context, tx pgx.Tx) error) error {
	timeout := s.QueryTimeout
	return q.WithSlot(ctx, wait, func(ctx context.Context) error {
		pool := q.Runs
		if q.Queries != nil {
			pool = q.Queries
		}
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return cmp.Or(context.Cause(ctx), fmt.Errorf("get a connection for the query: %w", err))
		}
		defer conn.Release()
		limit := bounded
		if q.Queries != nil { // there the limit is that of the query and its recheck together
			limit = untilTimeout
		}
		ctx, done := limit(ctx, timeout)
		defer done()
		began := time.Now()
		err = q.enter(ctx, conn, s, field, f)
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

// enter begins the transaction, prepares it for user SQL, and rolls it back after f.
func (q *Ranker) enter(ctx context.Context, conn *pgxpool.Conn, s assign.Settings, field string, f func(ctx context.Context, tx pgx.Tx) error) error {
	timeout, text := s.QueryTimeout, s.Query
	if field == "recheck" {
		text = s.Recheck
	}
	settings := limitStatements(timeout) // the query database's login limits the rights
	if q.Queries == nil {
		settings = q.enterQuery(timeout)
		settings += q.Watch.Setting(ctx) // so that the query of a node that dies ends soon, as a run's does
	}
	return q.inQuery(ctx, conn.Conn(), func(tx pgx.Tx) error {
		if err := q.admit(ctx, tx, field, text); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, settings+"; savepoint entered"); err != nil {
			return fmt.Errorf("enter the query: %w", err)
		}
		began := time.Now()
		err := f(ctx, tx)
		if errors.Is(err, errLeapt) || ctx.Err() == nil && leapt(ctx, tx, "entered", err, time.Since(began), timeout) {
			return assign.Refuse(assign.Unavailable, "%v; try again", errLeapt)
		}
		return err
	})
}

// errLeapt says that a query's time-out ended it too early, which is not the query's fault.
var errLeapt = errors.New("the database's clock was set forward while the query ran, and its time-out ended it")

// leapt reports whether the clock was set forward past a query's time-out. PostgreSQL then ends the query as soon as any of
// its timers fires, and the one that checks the client fires soon. So PostgreSQL says that the time-out ended the query, and
// by this node's clock there was time left. Somebody's cancel has the same code, and only the words differ, in whatever language
// the server has. So leapt lets a time-out end a statement and compares the words. The database's clock can't tell: it may have
// been set back since. leapt goes back to the savepoint, which is one before the query, if it has to look. That undoes its own
// time-out, too.
func leapt(ctx context.Context, tx pgx.Tx, savepoint string, err error, took time.Duration, timeout assign.Duration) bool {
	var ended, ends *pgconn.PgError
	if !pg.Cancelled(err) || !errors.As(err, &ended) || timedOut(took, timeout) {
		return false
	}
	back := "rollback to savepoint " + savepoint
	if _, err := tx.Exec(ctx, back+"; set local statement_timeout = 1"); err != nil {
		return false
	}
	_, slept := tx.Exec(ctx, "select pg_sleep(1)")
	if _, err := tx.Exec(ctx, back); err != nil {
		return false
	}
	return errors.As(slept, &ends) && ends.Code == ended.Code && ends.Message == ended.Message
}

// timedOut reports whether a query that took this long has used up its time. Clocks differ in speed, so a query that the
// server ended for its time-out may have taken a little less by this node's.
func timedOut(took time.Duration, timeout assign.Duration) bool {
	return took >= time.Duration(timeout)/100*99
}
