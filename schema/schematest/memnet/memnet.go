// Package memnet is a network in memory, for tests. Unlike the machine's, it works with the clock of a synctest bubble.
package memnet

import (
	"context"
	"net"
	"sync/atomic"
)

// Network is a listener, and what dials it.
type Network struct {
	conns  chan net.Conn
	closed chan struct{}
}

// New returns a network. Within a synctest bubble it must be made there.
func New() Network { return Network{make(chan net.Conn), make(chan struct{})} }

// Accept implements [net.Listener].
func (n Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. It must be called once.
func (n Network) Close() error {
	close(n.closed)
	return nil
}

// Addr implements [net.Listener].
func (n Network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }

// Dial is for [net/http.Transport.DialContext]: every address leads to the listener.
func (n Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		return ours, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// First dials a connection that goes silent, and sound ones after it.
type First struct {
	Network
	Silent  atomic.Bool // the first connection takes whatever is written to it, and passes nothing on
	Dialled atomic.Int32
}

// Dial is for [net/http.Transport.DialContext].
func (f *First) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := f.Network.Dial(ctx, network, address)
	if err != nil || f.Dialled.Add(1) > 1 {
		return c, err
	}
	return swallowing{c, &f.Silent}, nil
}

type swallowing struct {
	net.Conn
	silent *atomic.Bool
}

func (s swallowing) Write(b []byte) (int, error) {
	if s.silent.Load() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}
