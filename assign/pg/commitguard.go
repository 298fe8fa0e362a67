package pg

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

var errCommitting = errors.New("a commit is not cancelled")

// commitGuard keeps a connection's COMMIT from being cancelled when its context ends: when a client goes away, or a call takes
// too long. Under synchronous replication a commit waits until a standby has it. Cancelled, it waits no longer: PostgreSQL
// shows it to everybody at once, and if the primary is lost then it has never been, though others were already told of it.
// Left alone the transaction is shown when a standby has it, or is lost unseen. The connection is given up all the same.
type commitGuard struct {
	committing atomic.Bool
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
}

// guardCommits is for a pool's BeforeConnect, which gets the configuration of the one connection that is to be made.
func guardCommits(_ context.Context, config *pgx.ConnConfig) error {
	guard := &commitGuard{dial: config.DialFunc}
	config.DialFunc, config.Tracer = guard.dialUnlessCommitting, guard
	return nil
}

// dialUnlessCommitting is called to connect, and once more for each request to cancel.
func (g *commitGuard) dialUnlessCommitting(ctx context.Context, network, address string) (net.Conn, error) {
	if g.committing.Load() {
		return nil, errCommitting
	}
	return g.dial(ctx, network, address)
}

// TraceQueryStart is called before each statement.
func (g *commitGuard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	g.committing.Store(q.SQL == "commit") // what pgx sends for Tx.Commit
	return ctx
}

// TraceQueryEnd is called after it. If it has failed, the connection may be about to be closed, which would cancel.
func (g *commitGuard) TraceQueryEnd(_ context.Context, _ *pgx.Conn, end pgx.TraceQueryEndData) {
	if end.Err == nil {
		g.committing.Store(false)
	}
}
