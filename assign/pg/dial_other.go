//go:build !linux

package pg

import (
	"syscall"
	"time"
)

// limitUnconfirmed does nothing: elsewhere the system's own repetitions decide, or the next statement's end.
func limitUnconfirmed(syscall.RawConn, time.Duration) error { return nil }
