package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
)

// A rollback undoes whatever a user's query did, except for the advisory locks that it took for the session. Those would stay
// with the idle connection. They may be getwork's own, for which the next migration waits, or so many that the server has no
// room for other locks and refuses every new connection to any of its databases.
const unlockAll = `; select pg_catalog.pg_advisory_unlock_all()`

// spoils reports whether a connection should be closed after a user's query failed with err: the server ran out of something,
// such as room for locks, or broke. The end of the session frees all that it had.
func spoils(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (strings.HasPrefix(pgErr.Code, "53") || strings.HasPrefix(pgErr.Code, "XX"))
}

// leaveTo goes back to a savepoint before a user's query, in a transaction that goes on; err is the query's error. If the
// connection must not be used after that transaction, leaveTo marks it for [GiveUpSpoilt].
func leaveTo(ctx context.Context, tx pgx.Tx, savepoint string, err error) error {
	_, left := tx.Exec(ctx, "rollback to savepoint "+savepoint+unlockAll)
	markSpoilt(tx.Conn(), err)
	if left != nil {
		tx.Conn().PgConn().CustomData()[spoilt] = true
		return fmt.Errorf("leave the query: %w", left)
	}
	return nil
}

const spoilt = "spoilt by a query"

func markSpoilt(conn *pgx.Conn, err error) {
	if spoils(err) {
		conn.PgConn().CustomData()[spoilt] = true
	}
}

// GiveUpSpoilt closes a connection that was marked as spoilt. Its pool opens another. The transaction must have ended: on the run
// lock's connection it may still write the run's end.
func GiveUpSpoilt(ctx context.Context, conn *pgx.Conn) {
	if conn.PgConn().CustomData()[spoilt] != nil {
		_ = conn.Close(ctx)
	}
}

// inQuery calls f in a read-only transaction for user SQL, and rolls it back, even if ctx is over, because the connection is
// used again. The rollback is one message, since behind a transaction pooler the next message may meet another session.
func (q *Ranker) inQuery(ctx context.Context, conn *pgx.Conn, f func(pgx.Tx) error) error {
	options := pg.ReadOnly
	options.IsoLevel = cmp.Or(q.snapshot, options.IsoLevel)
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err = f(tx)
	after, cancel := pg.Detached(ctx)
	defer cancel()
	if _, left := conn.PgConn().Exec(after, "rollback"+unlockAll).ReadAll(); left != nil {
		_ = conn.Close(after)
	}
	markSpoilt(conn, err)
	GiveUpSpoilt(after, conn)
	return err
}
