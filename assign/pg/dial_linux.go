package pg

import (
	"syscall"
	"time"
)

const tcpUserTimeout = 0x12 // TCP_USER_TIMEOUT, which package syscall does not have

// limitUnconfirmed breaks a connection when nobody has confirmed for so long what was sent on it.
func limitUnconfirmed(c syscall.RawConn, limit time.Duration) (err error) {
	set := func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(limit.Milliseconds()))
	}
	if failed := c.Control(set); failed != nil {
		return failed
	}
	return err
}
