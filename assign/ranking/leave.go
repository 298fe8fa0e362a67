package ranking

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
)

// A rollback takes off whatever somebody's query did, but for the advisory locks that it took for the session. Those would
// stay with the idle connection: getwork's own, which the next migration waits for, or so many that the server has room for
// no other lock, and refuses every new connection to any of its databases.
const unlockAll = `; select pg_catalog.pg_advisory_unlock_all()`

// spoils reports whether a connection on which somebody's query ended so is better given up: the server ran out of
// something, such as room for locks, or broke. The end of the session gives back all that it had.
func spoils(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (strings.HasPrefix(pgErr.Code, "53") || strings.HasPrefix(pgErr.Code, "XX"))
}

// leaveTo goes back to a savepoint before somebody's query, of which err came, in a transaction that goes on. Where the
// connection is not to be used after that transaction, it is marked for [GiveUpSpoilt].
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

// GiveUpSpoilt closes a connection that was marked; its pool opens another.
func GiveUpSpoilt(ctx context.Context, conn *pgx.Conn) {
	if conn.PgConn().CustomData()[spoilt] != nil {
		_ = conn.Close(ctx)
	}
}

// inQuery calls f in a read-only transaction in which somebody's query is executed, and ends it, also when ctx is over: the
// connection is used again. It ends in one message, since behind a transaction pooler the next may meet another session.
func (q *Ranker) inQuery(ctx context.Context, conn *pgx.Conn, f func(pgx.Tx) error) error {
	tx, err := conn.BeginTx(ctx, pg.ReadOnly)
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
