package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
)

// placeWait bounds how long somebody who wants to look at a query's result waits for a place to run it.
const placeWait = 20 * time.Second

// withPlace calls f with a connection on which ranking queries run: of the query database if there is one, else of the
// runs' pool. It takes one of the node's places for runs meanwhile, so that previews, explanations, claims and rechecks
// together with the runs are never more than the database was promised. Who finds none free for as long as he can wait,
// or before ctx's deadline, is refused with [Busy]; a node that drains refuses with [Unavailable]. The connection is f's
// until it returns.
func (e *Engine) withPlace(ctx context.Context, wait time.Duration, f func(*pgxpool.Conn) error) error {
	base, done := e.join()
	if base == nil {
		return errEnding
	}
	defer done()
	if err := e.takePlace(ctx, base, wait); err != nil {
		return err
	}
	defer func() { // after the connection was given back: whoever takes the place finds one
		e.leave(ctx)
		e.givePlace()
	}()
	pool := e.runs
	if e.Queries != nil {
		pool = e.Queries
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("get a connection to run: %w", err)
	}
	defer conn.Release()
	return f(conn)
}

// takePlace takes a place for runs, and waits so long for one; 0: not at all.
func (e *Engine) takePlace(ctx, base context.Context, wait time.Duration) error {
	if e.takeNow(ctx) {
		return nil
	}
	if wait == 0 {
		return errNoPlace()
	}
	mine := &inLine{since: time.Now(), given: make(chan struct{})}
	e.mu.Lock()
	if e.line = append(e.line, mine); e.free > 0 { // one was given back since
		e.free--
		e.giveInLine()
	}
	e.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	var err error
	select {
	case <-mine.given:
		return nil
	case <-base.Done():
		err = errEnding
	case <-late.C:
		err = errNoPlace()
	case <-ctx.Done():
		err = context.Cause(ctx)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errNoPlace()
		}
	}
	e.mu.Lock()
	at := slices.Index(e.line, mine)
	if at >= 0 {
		e.line = slices.Delete(e.line, at, at+1)
	}
	e.mu.Unlock()
	if at < 0 { // it was given just now
		e.givePlace()
	}
	return err
}

func errNoPlace() error {
	return assign.Refuse(assign.Busy, "all places for queries on this node are taken; try again in a moment")
}

// join counts the caller among what the engine waits for when it ends, until done is called. The context ends when
// the engine begins to; nil: it has ended, or not begun.
func (e *Engine) join() (base context.Context, done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.base == nil || e.base.Err() != nil {
		return nil, nil
	}
	e.working.Add(1)
	return e.base, e.working.Done
}

// asQuery calls f in a transaction in which a ranking query can be looked at without a run: where queries run, read
// only, with the query role's rights, each statement limited to timeout, and with a place of the node's, for which it
// waits so long. It is rolled back in the end. What is the query's own fault, its time-out included, is [QueryRefused].
func (e *Engine) asQuery(ctx context.Context, wait time.Duration, timeout assign.Duration, f func(ctx context.Context, tx pgx.Tx) error) error {
	return e.withPlace(ctx, wait, func(conn *pgxpool.Conn) error {
		ctx, cancel := e.untilEnding(ctx)
		defer cancel()
		limit := bounded
		if e.Queries != nil { // rows are fetched in chunks there, and the server's limit counts for each anew
			limit = untilTimeout
		}
		ctx, done := limit(ctx, timeout)
		defer done()
		began := time.Now()
		err := e.enter(ctx, conn, timeout, f)
		var refusal *assign.Refusal
		if err == nil || errors.As(err, &refusal) {
			return err
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		var fault *errQuery
		if !errors.As(err, &fault) {
			err = faultOf(err, time.Since(began), timeout)
		}
		if errors.As(err, &fault) {
			return queryRefusal("query", "%s", fault.message)
		}
		return err
	})
}

// untilEnding is ctx, cancelled when the engine begins to end: a node that drains waits for nobody's query.
func (e *Engine) untilEnding(ctx context.Context) (context.Context, context.CancelFunc) {
	e.mu.Lock()
	base := e.base
	e.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(base, func() { cancel(errEnding) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// enter begins the transaction, makes it fit for somebody's query, and rolls it back after f.
func (e *Engine) enter(ctx context.Context, conn *pgxpool.Conn, timeout assign.Duration, f func(ctx context.Context, tx pgx.Tx) error) error {
	settings := limitStatements(timeout) // that login has its own rights
	if e.Queries == nil {
		settings = e.enterQuery(timeout)
		if e.beginRunLock(ctx) != beginLocking {
			settings += watchClient // so that the query of a node that died ends soon, as a run's does
		}
	}
	return e.inQuery(ctx, conn.Conn(), func(tx pgx.Tx) error {
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
