package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Router holds the connections for short statements: one pool for users' calls, another for the engine's own work, which is
// serve loops, rounds, sweeps and announcements. However many calls wait for a lock or for a slow disk, waiting requests are
// still served and their answers announced. A statement's context says which pool it uses. If Own is nil, Calls serves both.
type Router struct{ Calls, Own *pgxpool.Pool }

type ownWork struct{}

// AsOwn marks all statements of the context as the engine's own work.
func AsOwn(ctx context.Context) context.Context { return context.WithValue(ctx, ownWork{}, true) }

func (l Router) of(ctx context.Context) *pgxpool.Pool {
	if l.Own != nil && ctx.Value(ownWork{}) != nil {
		return l.Own
	}
	return l.Calls
}

// BeginTx begins a transaction on the pool that ctx chooses.
func (l Router) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	return l.of(ctx).BeginTx(ctx, o)
}

// Acquire lends a connection of the pool that ctx chooses.
func (l Router) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	return l.of(ctx).Acquire(ctx)
}

// Exec executes a statement on the pool that ctx chooses.
func (l Router) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return l.of(ctx).Exec(ctx, sql, args...)
}

// Query executes a statement on the pool that ctx chooses, and returns its rows.
func (l Router) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return l.of(ctx).Query(ctx, sql, args...)
}

// QueryRow executes a statement on the pool that ctx chooses, and returns its first row.
func (l Router) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return l.of(ctx).QueryRow(ctx, sql, args...)
}

// SendBatch sends a batch on the pool that ctx chooses.
func (l Router) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return l.of(ctx).SendBatch(ctx, b)
}
