package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// dialing is how many connections are opened at the same time: more than a node accepts at once gain nothing.
const dialing = 64

// sparedFiles are what a process needs beside the sockets that are counted.
const sparedFiles = 300

// checkFiles says so if n sockets are more than a process may have open. Go raises the limit as far as it may by
// itself, and a node is a Go program, too.
func checkFiles(n int) error {
	if most := openFiles(); most < uint64(n+sparedFiles) {
		return fmt.Errorf("%d sockets need a limit of %d open files, and it is %d: raise it (ulimit -Hn), or take --quick", n, n+sparedFiles, most)
	}
	return nil
}

// dialAll opens n connections, and has each prepare them, many at a time. address tells where the i-th goes.
func dialAll(ctx context.Context, n int, address func(i int) string, each func(ctx context.Context, i int, conn net.Conn) error) error {
	if err := checkFiles(n); err != nil {
		return err
	}
	g, dial := errgroup.WithContext(ctx)
	g.SetLimit(dialing)
	for i := range n {
		if dial.Err() != nil {
			break
		}
		g.Go(func() error {
			var d net.Dialer
			conn, err := d.DialContext(dial, "tcp", address(i))
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				err = fmt.Errorf("%w: there are too few ports for %d connections; widen the system's range for outgoing ones", err, n)
			}
			if err != nil {
				return err
			}
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // leave no port behind that waits for a minute
			}
			return each(dial, i, conn)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// latch opens when as many as it was made for have come.
type latch struct {
	left atomic.Int64
	open chan struct{}
}

func newLatch(n int) *latch {
	l := &latch{open: make(chan struct{})}
	l.left.Store(int64(n))
	if n == 0 {
		close(l.open)
	}
	return l
}

func (l *latch) down() {
	if l.left.Add(-1) == 0 {
		close(l.open)
	}
}

// wait waits until it is open; broken brings what makes that impossible. what completes "17 of them were not …".
func (l *latch) wait(ctx context.Context, broken <-chan error, within time.Duration, what string) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-l.open:
		return nil
	case err := <-broken:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("%d of them were not %s within %s", l.left.Load(), what, within)
	}
}
