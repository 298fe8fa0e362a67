package engine

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

// ranked is one row of a ranking query that can be handed out.
type ranked struct {
	rank      int64
	item      string
	slots     int
	exclusive *string
	details   string // JSON
}

// result is what one execution of a ranking query gave.
type result struct {
	items                      []ranked // best first, at most max_candidates
	cut                        bool     // there were more
	given, blocked, passedOver int64
	matching                   matching // what the task's recheck said of the best of them

	// What it saw: a snapshot of the same server, or else a time.
	snapshot  *string
	seenUntil *time.Time

	seen map[string]bool // the keys of items; of a query that runs elsewhere

	clock, began time.Time // with seenUntil: the primary's clock when the query began, and this node's
}

// errQuery is an error of the query itself: its requests fail with it.
type errQuery struct{ message string }

// errOurs: a statement of getwork's own failed while a query ran, which is not the query's fault.
var errOurs = errors.New("read what getwork itself knows")

func (e *errQuery) Error() string { return e.message }

// rankHere runs the query on the lock's own connection, under a savepoint of the lock's transaction. Lock and
// query are one backend: neither outlives the other, so no second run can start beside it. The lock survives a
// query that fails.
func (e *Engine) rankHere(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings) (result, error) {
	if _, err := tx.Exec(ctx, "savepoint ranking; "+e.enterQuery(s.QueryTimeout)); err != nil {
		return result{}, fmt.Errorf("enter the query: %w", err)
	}
	limited, done := bounded(ctx, s.QueryTimeout)
	defer done()
	began := time.Now()
	found, err := readRanked(limited, tx, e.wrapped(s.Query, task, s.Slots, s.MaxCandidates+1), s.MaxCandidates)
	took := time.Since(began)
	if err == nil {
		err = e.recheckResult(limited, tx, task, s, &found)
	}

	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if left := leaveTo(after, tx, "ranking", err); left != nil {
		return result{}, errors.Join(err, left)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return result{}, cause
	}
	if late := lateness(limited, err); late != nil {
		return result{}, late
	}
	if pg.Cancelled(err) && !timedOut(took, s.QueryTimeout) && leapt(after, tx, s.QueryTimeout) {
		return result{}, errLeapt
	}
	return found, faultOf(err, took, s.QueryTimeout)
}

// bounded is a context for all that is executed of somebody's in one transaction. A query can switch the server's
// statement_timeout off for what comes after it, and a long row of rechecks can keep to it one by one; without this bound
// either would hold the task, a place and a connection for as long as it likes.
func bounded(ctx context.Context, timeout assign.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 2*time.Duration(timeout)+5*time.Second,
		&errQuery{fmt.Sprintf("the query and its recheck together took longer than twice the query_timeout of %s, and 5s", timeout)})
}

// untilTimeout is a context for a query whose rows are fetched in chunks.
func untilTimeout(ctx context.Context, timeout assign.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, time.Duration(timeout), tooLong(timeout))
}

func tooLong(timeout assign.Duration) *errQuery {
	return &errQuery{fmt.Sprintf("the query took longer than its query_timeout of %s", timeout)}
}

// lateness is the errQuery that a context was ended with, if that is why there is an error; nil: it is not.
func lateness(limited context.Context, err error) error {
	var late *errQuery
	if err != nil && !errors.Is(err, errOurs) && errors.As(context.Cause(limited), &late) {
		return late
	}
	return nil
}

// faultOf makes an errQuery of what is the query's own fault.
func faultOf(err error, took time.Duration, timeout assign.Duration) error {
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
		return &errQuery{fmt.Sprintf("%s (%s) (SQLSTATE %s)", pgErr.Message, pgErr.Hint, pgErr.Code)}
	}
	return &errQuery{fmt.Sprintf("%s (SQLSTATE %s)", pgErr.Message, pgErr.Code)}
}

// usableKeys reports whether the keys of an item and its group have at most 200 bytes in UTF-8. PostgreSQL has counted those of
// the database's own encoding, which may be fewer.
func usableKeys(item string, exclusive *string) bool {
	return len(item) <= 200 && (exclusive == nil || len(*exclusive) <= 200)
}

// readRanked reads what a wrapped query returns: counts in every row, and items in those that are free.
func readRanked(ctx context.Context, tx pgx.Tx, statement string, most int) (result, error) {
	var found result
	// One statement by the extended protocol, whatever the pool's mode: more than one would be refused.
	rows, err := tx.Query(ctx, statement, pgx.QueryExecModeExec)
	if err != nil {
		return result{}, err
	}
	defer rows.Close()
	var given, unusable int
	for rows.Next() {
		var r ranked
		var item, snapshot *string
		var free bool
		if err := rows.Scan(&r.rank, &item, &r.slots, &r.exclusive, &r.details, &free, &found.given, &found.blocked, &found.passedOver, &snapshot); err != nil {
			return result{}, err
		}
		found.snapshot = snapshot
		if !free {
			continue
		}
		given++
		if !usableKeys(*item, r.exclusive) {
			unusable++
			continue
		}
		r.item, r.details = *item, detailsOf(r.details)
		found.items = append(found.items, r)
	}
	if err := rows.Err(); err != nil {
		return result{}, err
	}
	if found.cut = given > most; len(found.items) > most {
		found.items = found.items[:most]
	}
	found.passedOver += int64(unusable)
	slices.SortFunc(found.items, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) }) // what is full came last
	if found.snapshot == nil {                                                                 // it gave no rows at all, so nothing will be compared with what it saw
		empty := "1:1:"
		found.snapshot = &empty
	}
	return found, nil
}
