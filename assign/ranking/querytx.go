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
)

// InTx calls f, which executes a task's query or its recheck, for a preview, an explanation or a claim: in a transaction for
// user SQL outside of a run, on the connection where queries run, read only, with the query role's rights, each statement limited
// to the query_timeout, and with the slot for asking. The transaction is rolled back in the end. An error of the query itself,
// its time-out included, becomes [assign.QueryRefused]. field says which of the two f executes: "query" or "recheck". If it
// names a function that it must not call, f is not called.
func (q *Ranker) InTx(ctx context.Context, s assign.Settings, field string, f func(ctx context.Context, tx pgx.Tx) error) error {
	return q.AskSlot(ctx, func(ctx context.Context) error { return q.inTx(ctx, s, field, f) })
}

// inTx is InTx for a caller that has a slot.
func (q *Ranker) inTx(ctx context.Context, s assign.Settings, field string, f func(ctx context.Context, tx pgx.Tx) error) error {
	timeout := s.QueryTimeout
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
		if _, err := tx.Exec(ctx, settings); err != nil {
			return fmt.Errorf("enter the query: %w", err)
		}
		return f(ctx, tx)
	})
}

// timedOut reports whether a query that took this long has used up its time. Clocks differ in speed, so a query that the
// server ended for its time-out may have taken a little less by this node's.
func timedOut(took time.Duration, timeout assign.Duration) bool {
	return took >= time.Duration(timeout)/100*99
}
