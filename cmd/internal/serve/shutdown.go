package serve

import (
	"context"
	"os"
	"time"
)

// spread is the time over which sockets and event streams are sent to other nodes at shutdown.
func (n *node) spread() time.Duration { return n.config.DrainTimeout / 5 }

// shutDown ends the node's parts, each before the parts that it needs. First load balancers stop sending calls here,
// then sockets and held answers go to other nodes, then open calls end, then rounds end or are given up, then the
// announcements to other nodes, and last the spans. If that takes too long, the process exits with status.
func (n *node) shutDown(endEngine, endHearing context.CancelFunc, status int) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), n.config.DrainTimeout)
	defer cancel()
	n.log.Info("shutting down", "within", n.config.DrainTimeout)
	// If a part does not end in time, the process does: PostgreSQL rolls back open transactions, and other nodes take
	// over.
	n.late = time.AfterFunc(n.config.DrainTimeout, func() {
		n.log.Error("shutting down took too long; open calls and rounds are given up")
		os.Exit(status)
	})
	n.draining.Store(true)
	watched := n.probes.watched()
	n.drain()
	// A socket whose client does not answer gets half of the time, so that the other parts get the rest.
	closing, closed := context.WithTimeout(ctx, n.config.DrainTimeout/2)
	n.hub.Close(closing, n.spread())
	closed()
	// The load balancer may not know yet that this node ends, and may still send connections here.
	if watched {
		telling, told := context.WithDeadline(ctx, began.Add(n.spread()))
		<-telling.Done()
		told()
	}
	// A call that does not end, such as one whose client reads no answer, gets three quarters of the time.
	ending, ended := context.WithDeadline(ctx, began.Add(n.config.DrainTimeout*3/4))
	if err := n.server.Shutdown(ending); err != nil {
		_ = n.server.Close()
	}
	_ = n.metrics.Close()
	ended()
	endEngine()
	n.engine.Wait(ctx)
	endHearing()
	n.endTraces(began)
}
