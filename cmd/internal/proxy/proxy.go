// Package proxy stands between a node and its database, as the network does, and breaks as the network does: it can freeze,
// cut, delay and refuse connections, in both directions or in one.
//
//	p, err := proxy.Start("127.0.0.1:5432") // or the path of a Unix socket
//	if err != nil {
//		…
//	}
//	defer p.Close()
//	url, err := p.URL("postgres://me@127.0.0.1:5432/bank") // the same database by way of the proxy
//	…
//	p.Freeze(proxy.Both) // as when the cable is pulled: nothing arrives any more, and nobody is told
//	p.Thaw()
//	p.Cut() // everybody is told at once
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

// Direction is where bytes go.
type Direction int

// The directions, and both of them.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Proxy forwards every connection made to it to one server. Whoever started it must Close it.
type Proxy struct {
	target string
	in     net.Listener
	ctx    context.Context // ends with Close: dialling stops
	end    context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]struct{}
	frozen map[Direction]chan struct{} // of each frozen direction; closed when it thaws
	delay  time.Duration
	refuse bool
}

// Start listens on a free port of the loopback address, and forwards to target, HOST:PORT or the path of a Unix socket.
// The target is dialled for each connection anew, so it need not be there yet, and may come back.
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

// Addr is where it listens, HOST:PORT.
func (p *Proxy) Addr() string { return p.in.Addr().String() }

// Freeze lets no more bytes through, on any connection, old or new. Nobody is told: connections stay open, also those that
// either side has closed meanwhile, as when a cable is pulled or a host is stopped. What was sent arrives after Thaw.
func (p *Proxy) Freeze(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range []Direction{ToServer, ToClient} {
		if d&one != 0 && p.frozen[one] == nil {
			p.frozen[one] = make(chan struct{})
		}
	}
}

// Thaw ends a Freeze, of whichever direction.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one, frozen := range p.frozen {
		close(frozen)
		delete(p.frozen, one)
	}
}

// Cut closes all connections that there are now, also frozen ones. New ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Delay holds up what comes from now on by d in each direction, a few kilobytes at a time; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Refuse makes new connections end at once with a reset; those that there are stay. False takes them again.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Heal ends whatever was done to it.
func (p *Proxy) Heal() {
	p.Thaw()
	p.Delay(0)
	p.Refuse(false)
}

// Connections is how many there are now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close cuts all connections, and returns when nothing of the proxy runs any more. It may be called twice.
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
