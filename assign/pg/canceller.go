package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

const (
	cancelWithin  = 5 * time.Second        // a server that has not answered by then is away, and the connection given up
	cancelSettles = 100 * time.Millisecond // a signal may still be on its way when the server says that it was sent
)

// canceller cancels what a connection executes when its context ends, and keeps the connection. It is as pgx's own, but
// waits until the other side has closed the cancel request, also when the query's end is known before: PgBouncer before
// 1.21 ends itself, and with it everybody's connections, if who cancels hangs up first.
type canceller struct {
	conn *pgconn.PgConn
	over chan struct{} // closed when the request is over
}

func newCanceller(conn *pgconn.PgConn) ctxwatch.Handler { return &canceller{conn: conn} }

// HandleCancel is called when the context ends while the connection is used.
func (c *canceller) HandleCancel(context.Context) {
	over, deadline := make(chan struct{}), time.Now().Add(cancelWithin)
	c.over = over
	_ = c.conn.Conn().SetDeadline(deadline)
	go func() {
		defer close(over)
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		_ = c.conn.CancelRequest(ctx) // or the deadline ends what is executed
		time.Sleep(cancelSettles)
	}()
}

// HandleUnwatchAfterCancel is called before the connection is used again.
func (c *canceller) HandleUnwatchAfterCancel() {
	<-c.over
	_ = c.conn.Conn().SetDeadline(time.Time{})
}
