package pg

import (
	"syscall"
	"time"
)

const tcpUserTimeout = 0x12 // TCP_USER_TIMEOUT, which package syscall lacks

// limitUnconfirmed breaks a connection whose peer has not confirmed sent data within the limit.
func limitUnconfirmed(c syscall.RawConn, limit time.Duration) (err error) {
	set := func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(limit.Milliseconds()))
	}
	if failed := c.Control(set); failed != nil {
		return failed
	}
	return err
}
