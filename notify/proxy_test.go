package notify

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// proxy stands between a listener and the server, and can be frozen. Like a host that was cut off or stopped, it then
// forwards nothing in either direction on any connection. The connections stay open.
type proxy struct {
	gate sync.RWMutex // held for writing while frozen
	dial func(ctx context.Context) (net.Conn, error)
	in   net.Listener

	mu    sync.Mutex
	conns []net.Conn
	work  sync.WaitGroup
}

func newProxy(t *testing.T, dial func(context.Context) (net.Conn, error)) *proxy {
	t.Helper()
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{dial: dial, in: in}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		in.Close()
		p.cut()
		p.work.Wait()
	})
	return p
}

// freeze stops the forwarding until the returned function is called, or the test ends.
func (p *proxy) freeze(t *testing.T) (thaw func()) {
	p.gate.Lock()
	thaw = sync.OnceFunc(p.gate.Unlock)
	t.Cleanup(thaw)
	return thaw
}

// cut ends all connections; new ones can be made.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) accept() {
	for {
		client, err := p.in.Accept()
		if err != nil {
			return
		}
		server, err := p.dial(context.Background())
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.work.Go(func() { p.forward(client, server) })
		p.work.Go(func() { p.forward(server, client) })
	}
}

func (p *proxy) forward(from, to net.Conn) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		p.gate.RLock()
		p.gate.RUnlock() //nolint:staticcheck // waits while the proxy is frozen
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// behind makes a listener connect through a proxy.
func behind(t *testing.T, url string) (*proxy, func(*station, *pgx.ConnConfig)) {
	t.Helper()
	direct, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, func(ctx context.Context) (net.Conn, error) {
		network, address := pgconn.NetworkAddress(direct.Host, direct.Port)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
	return p, func(_ *station, config *pgx.ConnConfig) {
		at := p.in.Addr().(*net.TCPAddr)
		config.Host, config.Port, config.TLSConfig, config.Fallbacks = at.IP.String(), uint16(at.Port), nil, nil
	}
}
