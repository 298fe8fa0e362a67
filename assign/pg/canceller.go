package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

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
