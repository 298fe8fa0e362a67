package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockPatience is how long a statement waits for a lock. A session that holds one of getwork's locks longer is stuck, or
// somebody locked a table by hand. The waiting call is then refused, and its connection becomes free for others. lockPatience
// is longer than a node that froze under an assign lock keeps it.
const lockPatience = "8s"

// The isolation level is set here, whatever the server's default is. At a higher level the lock's statement would fix what
// the whole transaction sees, and a round would not see the requests that came during the query.
const beginReadCommitted = `begin isolation level read committed read write`

// OwnPlans makes PostgreSQL plan getwork's own statements by index, and in the index's order. A plan made while a table was
// empty, or before its statistics were collected, would scan the table, or read and sort a whole shelf, and would still be
// used when the table has grown. Compilation would take longer than the statements do.
const OwnPlans = `set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off`

// idleLimit frees the assign lock of a node that froze while it held it.
const (
	idleLimit = `set local idle_in_transaction_session_timeout = '5s'`
	lockLimit = `set local lock_timeout = '` + lockPatience + `'`
)

// OfARound gives a transaction that began otherwise the limits and plans of [ReadCommitted], before it takes the assign lock.
const OfARound = idleLimit + `; ` + lockLimit + `; ` + OwnPlans

// The options of transactions that write, and of those that only read.
var (
	ReadCommitted = pgx.TxOptions{BeginQuery: beginReadCommitted + `; ` + OfARound}
	ReadOnly      = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
)

// Beginner begins transactions: a pool, a [Router] over several, or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Transact runs f in a transaction of db at READ COMMITTED, which begins in the round trip of f's first statement. If
// PostgreSQL ends the transaction because of a deadlock, Transact begins again, up to ten times in all: managers who change
// conflicting tasks while others move work can meet three in a row. So f may run more than once, and must not keep anything from
// an earlier attempt. If f returns an error, Transact rolls back, and returns it. f leaves the commit to Transact, or uses [SendLast].
func Transact(ctx context.Context, db Beginner, f func(pgx.Tx) error) (err error) {
	for range 10 {
		var t *transaction
		t, err = transactOnce(ctx, db, f)
		t.ended(err)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "40P01" {
			return err
		}
	}
	return err
}

// Detached returns a context for writes that must happen although ctx is over, such as those after a query while the node
// shuts down. It ends after a minute, because a million candidates take their time.
func Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
}

// Cancelled reports whether PostgreSQL ended a statement because of its time-out or a cancel request.
func Cancelled(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "57014"
}
