package engine

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
)

// transact runs f in a transaction, as [Transact] does.
func (e *Engine) transact(ctx context.Context, f func(pgx.Tx) error) error {
	return pg.Transact(ctx, e.api, f)
}

// write executes one statement that writes, in a transaction of its own: by itself it would have the server's default
// level, at which it fails where it meets another's change instead of waiting and looking again.
func (e *Engine) write(ctx context.Context, statement string, args ...any) (tag pgconn.CommandTag, err error) {
	err = e.transact(ctx, func(tx pgx.Tx) error {
		tag, err = tx.Exec(ctx, e.SQL(statement), args...)
		return err
	})
	return tag, err
}
