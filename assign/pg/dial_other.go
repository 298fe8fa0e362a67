//go:build !linux

package pg

import (
	"syscall"
	"time"
)

// limitUnconfirmed does nothing. On other systems the connection breaks when the system's retransmissions or the next
// statement give up.
func limitUnconfirmed(syscall.RawConn, time.Duration) error { return nil }
