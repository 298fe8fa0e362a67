package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrMoved says that a statement touched another number of rows than its caller expects: a row is not as it was read.
var ErrMoved = errors.New("a row is not as it was read")

// AnyNumber accepts any number of rows.
const AnyNumber = -1

// Writes is a batch of statements with the number of rows that each must touch. It is sent once. The zero value is ready for use.
type Writes struct {
	batch  pgx.Batch
	expect []expected
}

type expected struct {
	rows    int
	read    func(pgx.CollectableRow) error // reads what the statement returns; nil: it returns nothing
	guarded bool                           // PostgreSQL itself fails if there are more rows or fewer
}

// Len returns the number of statements.
func (w *Writes) Len() int { return w.batch.Len() }

// Queue adds a statement that returns nothing. rows is how many it must touch, or [AnyNumber].
func (w *Writes) Queue(rows int, statement string, args ...any) {
	w.Read(rows, nil, statement, args...)
}

// Read adds a statement, and calls read for each row that it returns. Send checks its number of rows, but SendLast does not:
// it must be AnyNumber, or an insert that writes a row for each element of its arrays or fails.
func (w *Writes) Read(rows int, read func(pgx.CollectableRow) error, statement string, args ...any) {
	w.batch.Queue(statement, args...)
	w.expect = append(w.expect, expected{rows: rows, read: read})
}

// Send sends the statements. It returns [ErrMoved] if one does not touch as many rows as expected; then the transaction must
// be rolled back.
func (w *Writes) Send(ctx context.Context, tx pgx.Tx) error {
	return w.take(tx.SendBatch(ctx, &w.batch))
}

// SendLast is Send, and commits in the same round trip; see the function [SendLast]. If a statement does not touch as many rows
// as expected it fails, and nothing is committed.
func (w *Writes) SendLast(ctx context.Context, tx pgx.Tx) error {
	for i, q := range w.batch.QueuedQueries {
		if x := &w.expect[i]; x.rows != AnyNumber && x.read == nil {
			q.SQL, q.Arguments, x.guarded = guarded(q.SQL, len(q.Arguments)+1), append(q.Arguments, x.rows), true
		}
	}
	return w.take(SendLast(ctx, tx, &w.batch))
}

// guarded returns a statement that divides by zero unless the given one touches as many rows as the parameter of that number
// says.
func guarded(statement string, parameter int) string {
	return fmt.Sprintf("with touched as (%s\nreturning true)\nselect 1 / (count(*) = $%d)::integer from touched", statement, parameter)
}

// take reads all results.
func (w *Writes) take(results pgx.BatchResults) (err error) {
	defer func() {
		if end := results.Close(); err == nil {
			err = end
		}
	}()
	for _, x := range w.expect {
		touched, err := x.from(results)
		var pgErr *pgconn.PgError
		switch {
		case x.guarded && errors.As(err, &pgErr) && pgErr.Code == "22012":
			return fmt.Errorf("%w: not %d rows", ErrMoved, x.rows)
		case err != nil:
			return err
		case x.rows != AnyNumber && !x.guarded && touched != int64(x.rows):
			return fmt.Errorf("%w: %d rows instead of %d", ErrMoved, touched, x.rows)
		}
	}
	return nil
}

// from reads the next result, and counts the rows that the statement touched.
func (x expected) from(results pgx.BatchResults) (touched int64, err error) {
	if x.read == nil {
		tag, err := results.Exec()
		return tag.RowsAffected(), err
	}
	rows, err := results.Query()
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := x.read(rows); err != nil {
			return 0, err
		}
	}
	return rows.CommandTag().RowsAffected(), rows.Err()
}
