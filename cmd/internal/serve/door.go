package serve

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"getwork/web"
)

// door is the node's listener. It bounds how many connections strangers have, so that they can't take all of the process's
// file handles, nor memory for TLS. A connection is a stranger's until a call on it has named somebody, by a credential
// that is good. Beyond the limits a new connection is closed: one that waited would cost a handle, too.
//
// golang.org/x/net/netutil does not help. It knows no addresses, and with its one limit for all, strangers would keep
// everybody else waiting.
type door struct {
	net.Listener
	most      int                   // connections, whoever's
	strangers int                   // of all strangers
	each      int                   // of the strangers at one address
	known     func(netip.Addr) bool // who is no stranger: this machine, and trusted proxies, which have limits of their own
	log       *slog.Logger

	mu      sync.Mutex
	open    int
	strange int
	by      map[netip.Addr]int
	refused map[string]int64 // by reason
	told    time.Time
	untold  int // refused since

	closed bool
	over   bool          // and the server has every connection that was let in
	empty  chan struct{} // closed when no connection is left after that
	clear  sync.Once     // closes empty
}

// The reasons for closing a connection.
const (
	tooManyHandles   = "node"
	tooManyStrangers = "strangers"
	tooManyAtOne     = "address"
)

const (
	maxStrangers = 4096 // what 200 MiB suffice for, if all of them speak TLS

	// refusalsEvery is the least time between two log lines about closed connections.
	refusalsEvery = 10 * time.Second
)

// newDoor returns the node's door. handles is how many files the process may open; what is left is for the database.
func newDoor(l net.Listener, handles int, known func(netip.Addr) bool, log *slog.Logger) *door {
	d := &door{Listener: l, most: max(handles-max(handles/8, 128), handles/2), known: known, log: log,
		by: map[netip.Addr]int{}, empty: make(chan struct{}), refused: map[string]int64{tooManyHandles: 0, tooManyStrangers: 0, tooManyAtOne: 0}}
	d.strangers = min(maxStrangers, d.most/2)
	d.each = max(d.strangers/8, min(d.strangers, 32))
	return d
}

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.closed {
				d.over = true
				d.left()
				err = http.ErrServerClosed
			}
			return nil, err
		}
		if v := d.enter(c); v != nil {
			return v, nil
		}
		_ = c.Close()
	}
}

// Close stops listening. The open connections stay, and new ones are refused, so that proxies turn to other nodes.
func (d *door) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.Listener.Close()
}

// left notifies whoever waits for it that no connection is left. d.mu must be held.
func (d *door) left() {
	if d.over && d.open == 0 {
		d.clear.Do(func() { close(d.empty) })
	}
}

// enter lets a connection in, or returns nil.
func (d *door) enter(c net.Conn) *visitor {
	v := &visitor{Conn: c, door: d}
	if p, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		v.from = web.Network(p.Addr())
		v.strange = !d.known(p.Addr().Unmap().WithZone(""))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.open >= d.most:
		return d.refuse(tooManyHandles, v)
	case v.strange && d.by[v.from] >= d.each:
		return d.refuse(tooManyAtOne, v)
	case v.strange && d.strange >= d.strangers:
		return d.refuse(tooManyStrangers, v)
	}
	d.open++
	if v.strange {
		d.strange++
		d.by[v.from]++
	}
	return v
}

// refuse counts a connection that is not let in, and returns nil. d.mu must be held.
func (d *door) refuse(reason string, v *visitor) *visitor {
	d.refused[reason]++
	d.untold++
	if time.Since(d.told) >= refusalsEvery {
		d.log.Warn("closed connections that are over a limit", "limit", reason, "address", v.from, "count", d.untold, "open", d.open, "strangers", d.strange)
		d.told, d.untold = time.Now(), 0
	}
	return nil
}

// figures returns the metrics.
func (d *door) figures() web.Connections {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := web.Connections{Open: d.open, Strange: d.strange, Max: d.most, MaxStrange: d.strangers, Refused: map[string]int64{}}
	for reason, n := range d.refused {
		f.Refused[reason] = n
	}
	return f
}

// visitor is a connection that was let in.
type visitor struct {
	net.Conn
	door *door
	from netip.Addr // what counts as one client

	strange bool // until it is known whose it is
	gone    bool
}

// Close implements [net.Conn].
func (v *visitor) Close() error {
	v.door.mu.Lock()
	if !v.gone {
		v.gone = true
		v.door.open--
		v.familiar()
		v.door.left()
	}
	v.door.mu.Unlock()
	return v.Conn.Close()
}

// familiar ends the time in which the connection is a stranger's. door.mu must be held.
func (v *visitor) familiar() {
	if !v.strange {
		return
	}
	v.strange = false
	v.door.strange--
	if v.door.by[v.from]--; v.door.by[v.from] == 0 {
		delete(v.door.by, v.from)
	}
}

type visitorKey struct{}

// withVisitor is the server's ConnContext: a call can say to the door whose connection it came by.
func withVisitor(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, visitorKey{}, c)
}

// introducing wraps identify. After an authenticated call the call's connection no longer counts against the limit for
// strangers.
func introducing(identify web.Identify) web.Identify {
	return func(r *http.Request) (*web.Caller, error) {
		c, err := identify(r)
		if v, ok := r.Context().Value(visitorKey{}).(*visitor); ok && c != nil && err == nil {
			v.door.mu.Lock()
			v.familiar()
			v.door.mu.Unlock()
		}
		return c, err
	}
}
