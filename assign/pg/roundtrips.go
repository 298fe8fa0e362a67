package pg

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A transaction of getwork's own is as few round trips as it has decisions to make. BEGIN travels with the first statements,
// and with [SendLast] COMMIT travels with the last ones. PostgreSQL executes statements that travel together one after
// another, each with a snapshot of its own. If one of them fails it skips the others, COMMIT included.

// transaction is what [Transact] passes to its function.
type transaction struct {
	pgx.Tx // nil until the first statement

	db         Beginner
	conn       *pgx.Conn // nil before the first statement, if db is no pool
	settings   []string
	after      []func(certain bool)
	committing bool // COMMIT is on its way, or was
	over       bool // committed or rolled back by the server
}

// lender is a pool, or a [Router] over several.
type lender interface {
	Acquire(ctx context.Context) (*pgxpool.Conn, error)
}

func transactOnce(ctx context.Context, db Beginner, f func(pgx.Tx) error) (t *transaction, err error) {
	t = &transaction{db: db, settings: transactionSettings}
	if pool, lends := db.(lender); lends {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return t, err
		}
		defer conn.Release()
		t.db, t.conn = conn, conn.Conn()
		if left, known := t.conn.PgConn().CustomData()[settingsLeft].([]string); known {
			t.settings = left
		}
	}
	defer func() { // after a commit this does nothing; f may panic
		if back := t.Rollback(ctx); back != nil && !errors.Is(back, pgx.ErrTxClosed) {
			err = back
		}
	}()
	if err := f(t); err != nil {
		_ = t.Rollback(ctx)
		return t, err
	}
	return t, t.Commit(ctx)
}

// transactionSettings are the statements after BEGIN. A connection whose session has some of the settings already keeps the others
// under settingsLeft.
var transactionSettings = append([]string{idleLimit, lockLimit}, strings.Split(OwnPlans, "; ")...)

const settingsLeft = "getwork: settings of a transaction"

const selectSettings = `
select current_setting('lock_timeout') = '` + lockPatience + `' and current_setting('enable_seqscan') = 'off'
  and current_setting('enable_bitmapscan') = 'off' and current_setting('jit') = 'off'`

// findSettings is a pool's AfterConnect function. It asks the server, because a URL may set other values, and a pooler may accept
// settings and forget them.
func findSettings(ctx context.Context, conn *pgx.Conn) error {
	var has bool
	if err := conn.QueryRow(ctx, selectSettings, pgx.QueryExecModeExec).Scan(&has); err != nil {
		return err
	}
	if has {
		conn.PgConn().CustomData()[settingsLeft] = []string{idleLimit}
	}
	return nil
}

// SendBatch sends a batch. If it is the transaction's first, BEGIN travels with it.
func (t *transaction) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	switch {
	case t.over:
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	case t.Tx != nil:
		return t.Tx.SendBatch(ctx, b)
	}
	var whole pgx.Batch
	whole.BeginTx(pgx.TxOptions{BeginQuery: beginReadCommitted})
	for _, s := range t.settings {
		whole.Queue(s)
	}
	begun := whole.Len()
	whole.QueuedQueries = append(whole.QueuedQueries, b.QueuedQueries...)
	results := t.db.SendBatch(ctx, &whole)
	t.Tx = results.Tx()
	for range begun {
		if _, err := results.Exec(); err != nil {
			break // every later result has this error
		}
	}
	return results
}

// begin begins the transaction in a round trip of its own, for a first statement that can't be part of a batch.
func (t *transaction) begin(ctx context.Context) (pgx.Tx, error) {
	if t.over {
		return nil, pgx.ErrTxClosed
	}
	if t.Tx == nil {
		if err := t.SendBatch(ctx, &pgx.Batch{}).Close(); err != nil {
			return nil, err
		}
	}
	return t.Tx, nil
}

// alone sends one statement as the transaction's first batch.
func (t *transaction) alone(ctx context.Context, sql string, args []any) pgx.BatchResults {
	var b pgx.Batch
	b.Queue(sql, args...)
	return t.SendBatch(ctx, &b)
}

// Exec is part of [pgx.Tx].
func (t *transaction) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.Tx != nil && !t.over {
		return t.Tx.Exec(ctx, sql, args...)
	}
	results := t.alone(ctx, sql, args)
	tag, err := results.Exec()
	if end := results.Close(); err == nil {
		err = end
	}
	return tag, err
}

// Query is part of [pgx.Tx].
func (t *transaction) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.Tx != nil && !t.over {
		return t.Tx.Query(ctx, sql, args...)
	}
	results := t.alone(ctx, sql, args)
	rows, err := results.Query()
	r := &firstRows{Rows: rows, results: results}
	if err != nil {
		r.Close()
	}
	return r, err
}

// QueryRow is part of [pgx.Tx].
func (t *transaction) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.Tx != nil && !t.over {
		return t.Tx.QueryRow(ctx, sql, args...)
	}
	rows, _ := t.Query(ctx, sql, args...) // rows have the error
	return firstRow{rows}
}

// firstRows are the rows of the statement with which BEGIN travelled.
type firstRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error // of the end of the batch
}

// Next is part of [pgx.Rows].
func (r *firstRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close is part of [pgx.Rows].
func (r *firstRows) Close() {
	r.Rows.Close()
	if r.results != nil {
		r.err, r.results = r.results.Close(), nil
	}
}

// Err is part of [pgx.Rows].
func (r *firstRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// firstRow is the first of some rows.
type firstRow struct{ rows pgx.Rows }

// Scan is part of [pgx.Row].
func (r firstRow) Scan(into ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// Begin sets a savepoint.
func (t *transaction) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.begin(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Begin(ctx)
}

// CopyFrom is part of [pgx.Tx].
func (t *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, from pgx.CopyFromSource) (int64, error) {
	tx, err := t.begin(ctx)
	if err != nil {
		return 0, err
	}
	return tx.CopyFrom(ctx, table, columns, from)
}

// Prepare is part of [pgx.Tx].
func (t *transaction) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, err := t.begin(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Prepare(ctx, name, sql)
}

// Conn is part of [pgx.Tx].
func (t *transaction) Conn() *pgx.Conn {
	if t.Tx != nil {
		return t.Tx.Conn()
	}
	return t.conn
}

// Commit commits, unless [SendLast] has.
func (t *transaction) Commit(ctx context.Context) error {
	if t.over || t.Tx == nil {
		t.over = true
		return nil
	}
	t.committing, t.over = true, true
	return t.Tx.Commit(ctx)
}

// Rollback is part of [pgx.Tx].
func (t *transaction) Rollback(ctx context.Context) error {
	if t.over || t.Tx == nil {
		t.over = true
		return pgx.ErrTxClosed
	}
	t.over = true
	return t.Tx.Rollback(ctx)
}

// commit is the text by which [commitGuard] knows a commit.
const commit = "commit"

// SendLast sends a transaction's last statements, and COMMIT in the same round trip if [Transact] began it. Every statement
// that does not do what is expected of it must fail in PostgreSQL, because by the time its result is read the transaction has
// committed. If one fails, the transaction is open, as after any failed statement. The results must be closed before anything
// else is done: if that returns an error that is not PostgreSQL's, only PostgreSQL knows whether the transaction has committed.
func SendLast(ctx context.Context, tx pgx.Tx, b *pgx.Batch) pgx.BatchResults {
	t, ours := tx.(*transaction)
	if !ours {
		return tx.SendBatch(ctx, b)
	}
	b.Queue(commit)
	t.committing = true
	return &lastResults{BatchResults: t.SendBatch(ctx, b), t: t}
}

// lastResults are the results of a batch that ends with COMMIT.
type lastResults struct {
	pgx.BatchResults
	t      *transaction
	closed bool
	err    error
}

// Close reads whether the transaction has committed.
func (l *lastResults) Close() error {
	if l.closed {
		return l.err
	}
	l.closed = true
	l.err = l.BatchResults.Close()
	if l.t.Tx == nil {
		return l.err
	}
	if conn := l.t.Tx.Conn().PgConn(); conn.IsClosed() || conn.TxStatus() == 'I' {
		l.t.over = true
	} else {
		l.t.committing = false // COMMIT was skipped
	}
	return l.err
}

// AfterCommit makes [Transact] call f when tx has committed, and not if it has rolled back. If the connection was lost during
// the commit, only PostgreSQL knows, and certain is false. AfterCommit returns false, and f is never called, if Transact did
// not begin tx.
func AfterCommit(tx pgx.Tx, f func(certain bool)) bool {
	t, ours := tx.(*transaction)
	if ours {
		t.after = append(t.after, f)
	}
	return ours
}

// ended calls what waits for the commit, whose error is err.
func (t *transaction) ended(err error) {
	if !t.committing || errors.Is(err, pgx.ErrTxCommitRollback) {
		return
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.SeverityUnlocalized == "ERROR" {
		return // such as a deferred constraint's: the session lives on, and has rolled back
	}
	for _, f := range t.after {
		f(err == nil)
	}
}
