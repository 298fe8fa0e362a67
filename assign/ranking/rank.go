package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/assign/pg"
)

// Candidate is one row of a ranking query that can be handed out.
type Candidate struct {
	Rank      int64
	Item      string
	Slots     int
	Exclusive *string
	Details   string // JSON
}

// Result is what one execution of a ranking query returned.
type Result struct {
	Items                      []Candidate // best first, at most max_candidates
	Cut                        bool        // the query returned more
	Given, Blocked, PassedOver int64
	Matching                   Matching // what the task's recheck said of the best items

	// What the query saw: a snapshot of the same server, or else a time.
	Snapshot  *string
	SeenUntil *time.Time

	Seen map[string]bool // the items' keys, if the query ran on the query database

	size, rows   int64     // of details: bytes and rows
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
	found, err := q.readRanked(limited, tx, q.Wrapped(s.Query, task, s.Slots, s.MaxCandidates+1), s.MaxCandidates)
	took := time.Since(began)
	if err == nil {
		err = q.recheckResult(limited, tx, task, s, &found)
	}

	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if left := leaveTo(after, tx, "ranking", err); left != nil {
		return Result{}, errors.Join(err, left)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return Result{}, cause
	}
	if late := lateness(limited, err); late != nil {
		return Result{}, late
	}
	if pg.Cancelled(err) && !timedOut(took, s.QueryTimeout) && leapt(after, tx, s.QueryTimeout) {
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

// FaultOf turns an error that is the query's own fault into an ErrQuery.
func FaultOf(err error, took time.Duration, timeout assign.Duration) error {
	var pgErr *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOurs), errors.As(err, &connect), !errors.As(err, &pgErr) || !pg.QueryFault(pgErr):
		return fmt.Errorf("run the query: %w", err)
	case pgErr.Code == "57014" && timedOut(took, timeout):
		return tooLong(timeout)
	case pgErr.Hint != "":
		return &ErrQuery{fmt.Sprintf("%s (%s) (SQLSTATE %s)", pgErr.Message, pgErr.Hint, pgErr.Code)}
	}
	return &ErrQuery{fmt.Sprintf("%s (SQLSTATE %s)", pgErr.Message, pgErr.Code)}
}

// UsableKeys reports whether the keys of an item and its group have at most 200 bytes in UTF-8. PostgreSQL has counted them
// in the database's own encoding, where they may be shorter.
func UsableKeys(item string, exclusive *string) bool {
	return len(item) <= 200 && (exclusive == nil || len(*exclusive) <= 200)
}

// details returns a row's details, and adds their size to the result's. A node keeps a run's result in memory, so it refuses
// a query whose details are too large together.
func (q *Ranker) details(found *Result, row string) (string, error) {
	if found.size += int64(len(row)); found.size > q.MaxDetails {
		return "", &ErrQuery{fmt.Sprintf("the query's columns take more than %d MiB for the first %d items; return fewer or smaller columns, or lower max_candidates",
			q.MaxDetails>>20, found.rows)}
	}
	found.rows++
	return DetailsOf(row), nil
}

// readRanked reads what a wrapped query returns: counts in every row, and items in the rows that are free.
func (q *Ranker) readRanked(ctx context.Context, tx pgx.Tx, statement string, most int) (Result, error) {
	var found Result
	ctx, cancel := context.WithCancel(ctx)
	// The extended protocol, whatever the pool's mode is, takes one statement and refuses more.
	rows, err := tx.Query(ctx, statement, pgx.QueryExecModeExec)
	if err != nil {
		cancel()
		return Result{}, err
	}
	defer rows.Close()
	defer cancel() // first: what is left of too large a result is not read
	var given, unusable int
	for rows.Next() {
		var r Candidate
		var item, snapshot *string
		var free bool
		if err := rows.Scan(&r.Rank, &item, &r.Slots, &r.Exclusive, &r.Details, &free, &found.Given, &found.Blocked, &found.PassedOver, &snapshot); err != nil {
			return Result{}, err
		}
		found.Snapshot = snapshot
		if !free {
			continue
		}
		given++
		if !UsableKeys(*item, r.Exclusive) {
			unusable++
			continue
		}
		r.Item = *item
		if r.Details, err = q.details(&found, r.Details); err != nil {
			return Result{}, err
		}
		found.Items = append(found.Items, r)
	}
	if err := rows.Err(); err != nil {
		return Result{}, err
	}
	if found.Cut = given > most; len(found.Items) > most {
		found.Items = found.Items[:most]
	}
	found.PassedOver += int64(unusable)
	slices.SortFunc(found.Items, func(a, b Candidate) int { return cmp.Compare(a.Rank, b.Rank) }) // full items came last
	if found.Snapshot == nil {                                                                    // no rows, so nothing is compared with the snapshot
		empty := "1:1:"
		found.Snapshot = &empty
	}
	return found, nil
}
