// Package proxy stands between a node and its database and breaks as a network does: it can freeze, cut, delay and
// refuse connections, in one direction or both.
//
//	p, err := proxy.Start("127.0.0.1:5432") // or the path of a Unix socket
//	if err != nil {
//		…
//	}
//	defer p.Close()
//	url, err := p.URL("postgres://me@127.0.0.1:5432/bank") // the same database by way of the proxy
//	…
//	p.Freeze(proxy.Both) // as if the cable were pulled: nothing arrives any more, and nobody is notified
//	p.Thaw()
//	p.Cut() // everybody is notified at once
//
// All methods may be called by several goroutines at once.
package proxy

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// Direction is the direction in which bytes go.
type Direction int

// The two directions, and both together.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Proxy forwards every connection to one server. It must be closed after use.
type Proxy struct {
	target string
	in     net.Listener
	ctx    context.Context // ends with Close, which stops dialling
	end    context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]struct{}
	frozen map[Direction]chan struct{} // for each frozen direction, a channel that is closed when it thaws
	delay  time.Duration
	refuse bool
}

// Start listens on a free port of the loopback address, and forwards to target: HOST:PORT or the path of a Unix socket.
// It dials the target anew for each connection, so the target may start later, and may go away and come back.
func Start(target string) (*Proxy, error) {
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy to %s: %w", target, err)
	}
	p := &Proxy{target: target, in: in, links: map[*link]struct{}{}, frozen: map[Direction]chan struct{}{}}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p, nil
}

// Addr returns the address on which the proxy listens, HOST:PORT.
func (p *Proxy) Addr() string { return p.in.Addr().String() }

// Freeze lets no more bytes through, on any connection, old or new. Nobody is notified: connections stay open, even those
// that one side has closed, as when a cable is pulled or a host is stopped. The bytes arrive after Thaw.
func (p *Proxy) Freeze(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range []Direction{ToServer, ToClient} {
		if d&one != 0 && p.frozen[one] == nil {
			p.frozen[one] = make(chan struct{})
		}
	}
}

// Thaw ends a Freeze of any direction.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one, frozen := range p.frozen {
		close(frozen)
		delete(p.frozen, one)
	}
}

// Cut closes all current connections, including frozen ones. New connections are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Delay delays bytes that come from now on by d in each direction, a few kilobytes at a time; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Refuse makes new connections end at once with a reset; existing ones stay. Refuse(false) accepts connections again.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Heal ends every fault of the proxy.
func (p *Proxy) Heal() {
	p.Thaw()
	p.Delay(0)
	p.Refuse(false)
}

// Connections returns the current number of connections.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close cuts all connections, and returns when no goroutine of the proxy is left. It may be called twice.
func (p *Proxy) Close() {
	p.end()
	_ = p.in.Close()
	p.Cut()
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.in.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		switch {
		case p.ctx.Err() != nil:
			_ = client.Close()
		case p.refuse:
			_ = client.(*net.TCPConn).SetLinger(0) // a reset
			_ = client.Close()
		default:
			l := &link{proxy: p, client: client, over: make(chan struct{})}
			p.links[l] = struct{}{}
			p.work.Go(l.run)
		}
		p.mu.Unlock()
	}
}

// dial connects to the target.
func (p *Proxy) dial() (net.Conn, error) {
	network := "tcp"
	if strings.HasPrefix(p.target, "/") {
		network = "unix"
	}
	return (&net.Dialer{}).DialContext(p.ctx, network, p.target)
}
