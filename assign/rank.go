package assign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
func (e *Engine) rankHere(ctx context.Context, tx pgx.Tx, task int64, s Settings) (result, error) {
	if _, err := tx.Exec(ctx, "savepoint ranking; "+e.enterQuery(s.QueryTimeout)); err != nil {
		return result{}, fmt.Errorf("enter the query: %w", err)
	}
	began := time.Now()
	found, err := readRanked(ctx, tx, e.wrapped(s.Query, task, s.Slots, s.MaxCandidates+1), s.MaxCandidates)
	took := time.Since(began)
	if err == nil {
		err = e.recheckResult(ctx, tx, task, s, &found)
	}

	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if _, back := tx.Exec(after, "rollback to savepoint ranking"); back != nil {
		return result{}, errors.Join(err, fmt.Errorf("leave the query: %w", back))
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return result{}, cause
	}
	if cancelled(err) && !timedOut(took, s.QueryTimeout) && leapt(after, tx, s.QueryTimeout) {
		return result{}, errLeapt
	}
	return found, faultOf(err, took, s.QueryTimeout)
}

// faultOf makes an errQuery of what is the query's own fault.
func faultOf(err error, took time.Duration, timeout Duration) error {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOurs), errors.As(err, &connect), !errors.As(err, &pg) || !queryFault(pg):
		return fmt.Errorf("run the query: %w", err)
	case pg.Code == "57014" && timedOut(took, timeout):
		return &errQuery{fmt.Sprintf("the query took longer than its query_timeout of %s", timeout)}
	case pg.Hint != "":
		return &errQuery{fmt.Sprintf("%s (%s) (SQLSTATE %s)", pg.Message, pg.Hint, pg.Code)}
	}
	return &errQuery{fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)}
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
		r.item, r.details = *item, detailsOf(r.details)
		found.items = append(found.items, r)
	}
	if err := rows.Err(); err != nil {
		return result{}, err
	}
	if len(found.items) > most {
		found.items, found.cut = found.items[:most], true
	}
	slices.SortFunc(found.items, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) }) // what is full came last
	if found.snapshot == nil {                                                                 // it gave no rows at all, so nothing will be compared with what it saw
		empty := "1:1:"
		found.snapshot = &empty
	}
	return found, nil
}
