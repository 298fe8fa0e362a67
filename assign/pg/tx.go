package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockPatience is how long a statement waits for a lock. Whoever holds one of ours longer is stuck, or is somebody who
// locked a table by hand: who waits is told so, and its connection is there for others. It is longer than a node that
// froze under an assign lock keeps it.
const lockPatience = "8s"

// The isolation level is set here, whatever the server's default is: at a higher one, the lock's statement would
// fix what the whole transaction sees, and who waits would be who waited before the query. The idle time-out frees
// the assign lock of a node that froze while it held it.
var (
	ReadCommitted = pgx.TxOptions{
		BeginQuery: `begin isolation level read committed read write; set local idle_in_transaction_session_timeout = '5s'; set local lock_timeout = '` + lockPatience + `'; ` + OwnPlans,
	}
	ReadOnly = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
)

// OwnPlans is how PostgreSQL is to plan what getwork itself asks: by index, and in its order. A plan made while a table was
// empty, or before its statistics were taken, would scan it, or read and sort all of a shelf, and go on so while it grows.
// And it is over before it would be compiled.
const OwnPlans = `set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off`

// Beginner begins transactions: a pool, or a [Router] over several.
type Beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Transact runs f in a transaction of db at READ COMMITTED. If PostgreSQL ended it for a deadlock, it begins again, three
// times in all: f may run more than once, and must not keep anything of an earlier attempt.
func Transact(ctx context.Context, db Beginner, f func(pgx.Tx) error) (err error) {
	for range 3 {
		err = pgx.BeginTxFunc(ctx, db, ReadCommitted, f)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "40P01" {
			return err
		}
	}
	return err
}

// Detached is a context for what must be written although ctx is over, such as what follows a query while the node shuts down. It
// ends after a minute: a million candidates take their time.
func Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
}

// IDs reads the ids that a statement returns.
func IDs(ctx context.Context, tx pgx.Tx, statement string) ([]int64, error) {
	rows, err := tx.Query(ctx, statement)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Cancelled reports whether PostgreSQL ended a statement, for its time-out or because it was asked to.
func Cancelled(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "57014"
}
