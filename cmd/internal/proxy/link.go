package proxy

import (
	"net"
	"sync"
	"time"
)

// link is a client's connection, with the one to the server that belongs to it.
type link struct {
	proxy  *Proxy
	client net.Conn
	over   chan struct{} // closed when the link is cut

	once sync.Once
	mu   sync.Mutex
	ends []net.Conn // the connections that cut closes
}

// run forwards until both ends are closed.
func (l *link) run() {
	defer func() {
		l.cut()
		l.proxy.mu.Lock()
		delete(l.proxy.links, l)
		l.proxy.mu.Unlock()
	}()
	if !l.owns(l.client) || !l.pass(ToServer) { // a frozen network does not connect either
		return
	}
	server, err := l.proxy.dial()
	if err != nil || !l.owns(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.forward(l.client, server, ToServer) })
	both.Go(func() { l.forward(server, l.client, ToClient) })
	both.Wait()
}

// owns has cut close a connection, too. It returns false if the link was cut already, and then the connection is
// closed.
func (l *link) owns(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.over:
		_ = c.Close()
		return false
	default:
		l.ends = append(l.ends, c)
		return true
	}
}

// cut closes both ends at once.
func (l *link) cut() {
	l.once.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.over)
		for _, c := range l.ends {
			_ = c.Close()
		}
	})
}

// forward copies until from is closed. to learns of that as it learns of everything else: not while it is frozen. If to
// can't be written to any more, the other direction notices, and notifies from.
func (l *link) forward(from, to net.Conn, d Direction) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if !l.pass(d) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// pass waits while the direction is frozen, and for the delay. It returns false if the link was cut meanwhile.
func (l *link) pass(d Direction) bool {
	l.proxy.mu.Lock()
	delay := l.proxy.delay
	l.proxy.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.over:
			return false
		}
	}
	for {
		l.proxy.mu.Lock()
		frozen := l.proxy.frozen[d]
		l.proxy.mu.Unlock()
		if frozen == nil {
			return true
		}
		select {
		case <-frozen:
		case <-l.over:
			return false
		}
	}
}
