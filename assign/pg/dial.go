package pg

import (
	"context"
	"net"
	"syscall"
	"time"
)

// A connection that waits for an answer sends nothing, so a server whose host vanished, or that has dropped it meanwhile, is
// noticed by keepalives alone: after 14 s, and where something was sent that nobody confirms, after 15. Go's own take two
// and a half minutes, and the system's repetitions a quarter of an hour; so long would a run's place be taken, and its task
// stand still if this node is the only one.
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
