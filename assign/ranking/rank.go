package ranking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"getwork/assign"
	"getwork/assign/pg"
)

// Candidate is one row of a ranking query that can be handed out.
type Candidate struct {
	Rank      int64   // its row in the query's result, from 1
	Item      string  // its key
	Slots     int     // how many holders it may have at a time
	Exclusive *string // its group, of which one member is held at a time; nil: none
	Details   string  // JSON

	full bool // all its places were taken when the query read it, or its group was busy
}

// Result is what one execution of a ranking query returned.
type Result struct {
	Items                      []Candidate // best first, at most max_candidates
	Cut                        bool        // the query returned more
	Given, Blocked, PassedOver int64       // rows
	Matching                   Matching    // what the task's recheck said of the best items

	// What the query saw: a snapshot of the same server, or else a time.
	Snapshot  *string
	SeenUntil *time.Time

	Seen *KeySet // the items, so that none is taken twice

	clock, began time.Time // with SeenUntil: when the query began, by the primary's clock and by this node's
}

// ErrQuery is an error of the query itself: its requests fail with it.
type ErrQuery struct{ Message string }

// errOurs says that a statement of getwork's own failed while a query ran, which is not the query's fault.
var errOurs = errors.New("read what getwork itself knows")

func (e *ErrQuery) Error() string { return e.Message }

// rankHere runs the query on the lock's own connection, under a savepoint of the lock's transaction. Lock and query share one
// backend, so neither outlives the other, and no second run can start beside the query. The lock survives a query that fails.
func (q *Ranker) rankHere(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings) (Result, error) {
	if err := q.admitRun(ctx, tx, s); err != nil {
		return Result{}, err
	}
	if _, err := tx.Exec(ctx, "savepoint ranking; "+q.enterQuery(s.QueryTimeout)); err != nil {
		return Result{}, fmt.Errorf("enter the query: %w", err)
	}
	limited, done := bounded(ctx, s.QueryTimeout)
	defer done()
	began := time.Now()
	found, err := q.read(limited, tx, task, s)
	took := time.Since(began)
	if err == nil {
		err = q.recheckResult(limited, tx, task, s, &found)
	}

	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if left := leaveTo(after, tx, "ranking", err); left != nil {
		return Result{}, errors.Join(tooLarge(err), left)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return Result{}, cause
	}
	if late := lateness(limited, err); late != nil {
		return Result{}, late
	}
	if leapt(after, tx, "ranking", err, took, s.QueryTimeout) {
		return Result{}, errLeapt
	}
	return found, FaultOf(err, took, s.QueryTimeout)
}

// bounded returns a context for all the user SQL of one transaction. A query can switch off the server's statement_timeout
// for the statements after it, and many rechecks may each stay within it. Without this bound either could hold the task, a
// run slot and a connection for as long as it likes.
func bounded(ctx context.Context, timeout assign.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 2*time.Duration(timeout)+5*time.Second,
		&ErrQuery{fmt.Sprintf("the query and its recheck together took longer than twice the query_timeout of %s, and 5s", timeout)})
}

// untilTimeout returns a context for a query that runs on the query database, its recheck included.
func untilTimeout(ctx context.Context, timeout assign.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, time.Duration(timeout), tooLong(timeout))
}

func tooLong(timeout assign.Duration) *ErrQuery {
	return &ErrQuery{fmt.Sprintf("the query took longer than its query_timeout of %s", timeout)}
}

// lateness returns the ErrQuery that ended the context, if it explains err; otherwise nil.
func lateness(limited context.Context, err error) error {
	var late *ErrQuery
	if err != nil && !errors.Is(err, errOurs) && errors.As(context.Cause(limited), &late) {
		return late
	}
	return nil
}

// tooLarge returns an ErrQuery for a row, or an error, that was not read because it is larger than the connection allows; any other
// err as it is. The connection was closed.
func tooLarge(err error) error {
	var large *pgproto3.ExceededMaxBodyLenErr
	if !errors.As(err, &large) {
		return err
	}
	return &ErrQuery{fmt.Sprintf("a row of the query, or its error, takes %.1f MiB, and a node reads %.1f MiB at once; leave out large columns, or return a part of them",
		float64(large.ActualBodyLen)/(1<<20), float64(large.MaxExpectedBodyLen)/(1<<20))}
}

// FaultOf turns an error that is the query's own fault into an ErrQuery.
func FaultOf(err error, took time.Duration, timeout assign.Duration) error {
	err = tooLarge(err)
	var pgErr *pgconn.PgError
	var fault *ErrQuery
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fault):
		return err
	case errors.Is(err, errOurs), errors.As(err, &connect), !errors.As(err, &pgErr) || !pg.QueryFault(pgErr):
		return fmt.Errorf("run the query: %w", err)
	case pgErr.Code == "57014" && timedOut(took, timeout):
		return tooLong(timeout)
	case pgErr.Hint != "":
		return &ErrQuery{fmt.Sprintf("%s (%s) (SQLSTATE %s)", pg.Brief(pgErr.Message), pg.Brief(pgErr.Hint), pgErr.Code)}
	}
	return &ErrQuery{fmt.Sprintf("%s (SQLSTATE %s)", pg.Brief(pgErr.Message), pgErr.Code)}
}
