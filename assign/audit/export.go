package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
)

// snapshotTx is a transaction in which the audit stands still.
type snapshotTx struct {
	pgx.Tx
	sql func(string) string
}

// At REPEATABLE READ all statements see the same rows. Reading them may take longer than the login's statements may.
var standingStill = pgx.TxOptions{BeginQuery: `begin isolation level repeatable read read only; set local statement_timeout = 0`}

func snapshot(ctx context.Context, db DB, sql func(string) string, f func(snapshotTx) error) error {
	if sql == nil {
		sql = func(statement string) string { return statement }
	}
	return pgx.BeginTxFunc(ctx, db, standingStill, func(tx pgx.Tx) error { return f(snapshotTx{tx, sql}) })
}

// rows calls f with each row that a statement returns, as they come.
func (tx snapshotTx) rows(ctx context.Context, statement string, f func(Row) error, args ...any) error {
	rows, err := tx.Query(ctx, tx.sql(statement), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		r, err := scan(rows)
		if err != nil {
			return err
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Exported is a part of the audit that was exported.
type Exported struct {
	Rows     int64
	From, To int64 // the numbers of the first and the last row; 0: there was none
	Hash     Sum   // of the last row
}

const (
	// The clock may have been set back. Only what comes before the first row of a later time is exported, because a chain
	// that is cut in several places proves nothing.
	selectEnd = `select coalesce(min(n), 9223372036854775807) from getwork.audit where at >= $1`

	selectRowsTo = `select ` + columns + ` from getwork.audit where n < $1 order by n`
)

// Export passes the rows before a time to f, one by one in their order; all rows if before is zero. If f fails, Export returns that
// error as it is.
func Export(ctx context.Context, db DB, sql func(string) string, before time.Time, f func(Row) error) (e Exported, err error) {
	var failed error
	err = snapshot(ctx, db, sql, func(tx snapshotTx) error {
		end := int64(1<<63 - 1)
		if !before.IsZero() {
			if err := tx.QueryRow(ctx, tx.sql(selectEnd), before).Scan(&end); err != nil {
				return err
			}
		}
		return tx.rows(ctx, selectRowsTo, func(r Row) error {
			if e.Rows == 0 {
				e.From = r.N
			}
			e.Rows++
			e.To, e.Hash = r.N, r.Hash
			failed = f(r)
			return failed
		}, end)
	})
	switch {
	case failed != nil:
		return e, failed
	case err != nil:
		return e, fmt.Errorf("read the audit: %w", err)
	}
	return e, nil
}

// cutAct is the act of the row that says what was cut.
const cutAct = "audit.cut"

// cutDetail is its detail.
type cutDetail struct {
	From   int64     `json:"from"`
	To     int64     `json:"to"`
	Rows   int64     `json:"rows"`
	Before time.Time `json:"before"`
	Hash   Sum       `json:"hash"`  // of the last row that was cut, which is the Prev of the first that is left
	Login  string    `json:"login"` // the database's name of who cut them
}

const (
	// A trigger on the table refuses to delete rows without the first setting. Deleting them may take longer than the login's
	// statements may. Both settings end with the transaction.
	allowCut   = `select session_user::text, set_config('getwork_audit.cut', 'yes', true), set_config('statement_timeout', '0', true)`
	deleteRows = `delete from getwork.audit where n between $1 and $2`
)

var errMoved = errors.New("the audit has changed since it was exported, so nothing was removed; export it again")

// Cut removes the rows that were exported, all of which are before that time, and adds a row that names them. [Verify] accepts
// only gaps that such a row names. Cut returns the number of that row. The login must own the table. The caller must have stored what
// was exported: after the commit it is nowhere else.
func (w *Writer) Cut(ctx context.Context, e Exported, before time.Time) (n int64, err error) {
	err = pg.Transact(ctx, w.DB, func(tx pgx.Tx) error {
		cut := cutDetail{From: e.From, To: e.To, Rows: e.Rows, Before: before.UTC(), Hash: e.Hash}
		if err := tx.QueryRow(ctx, allowCut).Scan(&cut.Login, nil, nil); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, w.sql(deleteRows), e.From, e.To)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != e.Rows {
			return errMoved
		}
		r, err := w.write(ctx, tx, Act{Act: cutAct, Actor: cut.Login, Detail: cut})
		if err != nil {
			return err
		}
		n = r.N
		pg.AfterCommit(tx, func(certain bool) { w.tell(r, certain) })
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("cut the audit: %w", err)
	}
	return n, nil
}
