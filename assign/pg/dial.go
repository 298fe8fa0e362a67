package pg

import (
	"context"
	"net"
	"syscall"
	"time"
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
