package pg

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

var errCommitting = errors.New("a commit is not cancelled")

// commitGuard prevents a COMMIT from being cancelled when its context ends because a client left or a call took too long.
// Under synchronous replication a commit waits until a standby has it. A cancelled commit stops waiting: PostgreSQL shows it
// to everybody at once. If the primary is then lost, the commit never happened, although others have already acted on it. A
// commit that is left alone becomes visible when a standby has it, or is lost unseen. The connection is given up in any case.
type commitGuard struct {
	committing atomic.Bool
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
}

// guardCommits is a pool's BeforeConnect function. It gets the configuration of the one connection to be made. The guard takes the
// place of the connection's tracer, so a pool can have no other.
func guardCommits(_ context.Context, config *pgx.ConnConfig) error {
	guard := &commitGuard{dial: config.DialFunc}
	config.DialFunc, config.Tracer = guard.dialUnlessCommitting, guard
	return nil
}

// dialUnlessCommitting is called to connect, and again for each cancel request.
func (g *commitGuard) dialUnlessCommitting(ctx context.Context, network, address string) (net.Conn, error) {
	if g.committing.Load() {
		return nil, errCommitting
	}
	return g.dial(ctx, network, address)
}

// TraceQueryStart is called before each statement.
func (g *commitGuard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	g.committing.Store(q.SQL == commit) // what pgx sends for Tx.Commit
	return ctx
}

// TraceQueryEnd is called after each statement. After an error the guard stays on: the connection may be about to be closed,
// and closing it would cancel the commit.
func (g *commitGuard) TraceQueryEnd(_ context.Context, _ *pgx.Conn, end pgx.TraceQueryEndData) {
	if end.Err == nil {
		g.committing.Store(false)
	}
}

// TraceBatchStart is called before each batch. See [SendLast].
func (g *commitGuard) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	last := len(b.Batch.QueuedQueries) - 1
	g.committing.Store(last >= 0 && b.Batch.QueuedQueries[last].SQL == commit)
	return ctx
}

// TraceBatchQuery is part of [pgx.BatchTracer].
func (g *commitGuard) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd is like TraceQueryEnd.
func (g *commitGuard) TraceBatchEnd(_ context.Context, _ *pgx.Conn, end pgx.TraceBatchEndData) {
	if end.Err == nil {
		g.committing.Store(false)
	}
}
