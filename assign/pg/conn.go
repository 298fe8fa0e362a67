package pg

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// A connection that waits for an answer sends nothing, so only keepalives detect that the server's host vanished or has
// dropped the connection. They do after 14 s, or after 15 s if data was sent and not confirmed. Go's own keepalives take two
// and a half minutes, and the system's retransmissions a quarter of an hour. For that long a run would keep its slot, and its
// task would stand still if this node is the only one.
const unconfirmedFor = 15 * time.Second

// dialer connects to the database.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3},
	ControlContext: func(_ context.Context, network, _ string, c syscall.RawConn) error {
		if network == "unix" {
			return nil
		}
		return limitUnconfirmed(c, unconfirmedFor)
	},
}

const (
	cancelWithin  = 5 * time.Second        // then the server counts as gone, and the connection is given up
	cancelSettles = 100 * time.Millisecond // the signal may still be under way after the server has confirmed the request
)

// canceller cancels the running statement when its context ends, and keeps the connection. It does the same as pgx's own
// handler, but waits until the server has closed the cancel request, even if the statement ends before. PgBouncer before 1.21
// exits if the client hangs up first, and drops everybody's connections.
type canceller struct {
	conn *pgconn.PgConn
	over chan struct{} // closed when the cancel request has ended
}

func newCanceller(conn *pgconn.PgConn) ctxwatch.Handler { return &canceller{conn: conn} }

// HandleCancel is called when the context ends while the connection is in use.
func (c *canceller) HandleCancel(context.Context) {
	over, deadline := make(chan struct{}), time.Now().Add(cancelWithin)
	c.over = over
	_ = c.conn.Conn().SetDeadline(deadline)
	go func() {
		defer close(over)
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		_ = c.conn.CancelRequest(ctx) // if it fails, the deadline ends the statement
		time.Sleep(cancelSettles)
	}()
}

// HandleUnwatchAfterCancel is called before the connection is used again.
func (c *canceller) HandleUnwatchAfterCancel() {
	<-c.over
	_ = c.conn.Conn().SetDeadline(time.Time{})
}

// ClientWatch makes the server check, while a statement runs, that its client is still connected. The query of a node that
// died then ends within half a second.
type ClientWatch struct {
	DB  Beginner
	Log *slog.Logger

	mu      sync.Mutex
	known   bool
	setting string
}

// watchClient applies to one transaction, so it also works through a transaction pooler.
const watchClient = `; set local client_connection_check_interval = '500ms'`

// Setting returns the text that follows "begin" in a transaction's first message. It is empty if the server can't watch its
// clients: on some platforms servers refuse the setting. The first call that reaches the server finds out.
func (w *ClientWatch) Setting(ctx context.Context) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known {
		return w.setting
	}
	tx, err := w.DB.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin" + watchClient})
	switch {
	case err == nil:
		_ = tx.Rollback(ctx)
		w.setting = watchClient
	case ctx.Err() != nil || Away(err):
		return "" // this error says nothing about the server
	default:
		w.Log.Warn("this server can't detect that a client is gone: the query of a node that died runs to its end", "error", err)
	}
	w.known = true
	return w.setting
}

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
