package serve

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"getwork/web"
)

// from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.address))
}

func (f from) Close() error { return nil }

func small(l net.Listener, log io.Writer) *door {
	d := newDoor(l, 0, func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.1") }, slog.New(slog.NewTextHandler(log, nil)))
	d.most, d.strangers, d.each = 10, 6, 4
	return d
}

// Strangers have few connections at one address, few altogether, and never all of them.
func TestDoor(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	d := small(nil, &log)
	var inside []*visitor
	come := func(address string, n, want int) {
		t.Helper()
		in := 0
		for range n {
			if v := d.enter(from{address: address}); v != nil {
				inside = append(inside, v)
				in++
			}
		}
		if in != want {
			t.Errorf("%d from %s are let in, want %d", in, address, want)
		}
	}
	come("192.0.2.1:1", 6, 4) // those of one address
	come("[2001:db8::1]:1", 1, 1)
	come("[2001:db8::2]:1", 1, 1)
	come("192.0.2.2:1", 1, 0) // those of all strangers
	come("10.0.0.1:1", 5, 4)  // all that there are
	come("203.0.113.1:1", 1, 0)
	if f := d.figures(); f.Open != 10 || f.Strange != 6 || f.Refused["address"] != 2 || f.Refused["strangers"] != 1 || f.Refused["node"] != 2 {
		t.Errorf("figures %+v", f)
	}
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "limit=address address=192.0.2.1 count=1") {
		t.Errorf("the log says %s", said)
	}
	for _, v := range inside[:5] {
		_ = v.Close()
		_ = v.Close() // counts once
	}
	come("192.0.2.1:1", 6, 4)
	for _, v := range inside[5:] {
		_ = v.Close()
	}
	if f := d.figures(); f.Open != 0 || f.Strange != 0 || len(d.by) != 0 {
		t.Errorf("when all have gone: %+v, %v", f, d.by)
	}
}

// What a process may open leaves room for its own needs.
func TestDoorsSizes(t *testing.T) {
	t.Parallel()
	for handles, want := range map[int][3]int{256: {128, 64, 32}, 1024: {896, 448, 56}, 20_000: {17_500, 4096, 512}, 1 << 20: {917_504, 4096, 512}} {
		d := newDoor(nil, handles, nil, nil)
		if got := [3]int{d.most, d.strangers, d.each}; got != want {
			t.Errorf("of %d files %v, want %v", handles, got, want)
		}
	}
	if handles() < 256 {
		t.Errorf("this process may open %d files", handles())
	}
}

// A connection stops being a stranger's with the first call that names somebody, and others may come.
func TestDoorKnowsUsers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := small(l, t.Output())
	identify := introducing(func(r *http.Request) (*web.Caller, error) {
		if r.Header.Get("User") == "" {
			return nil, nil
		}
		return &web.Caller{}, nil
	})
	s := &http.Server{ConnContext: withVisitor, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = identify(r) })}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(d) })
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
	// call makes a connection and a call on it, and reports whether it was answered.
	call := func(header string) bool {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+header+"\r\n")
		_, err = http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil
	}
	for i := range 5 {
		if answered := call("User: mia\r\n"); !answered {
			t.Errorf("connection %d of a user is closed", i)
		}
	}
	for i := range 6 {
		if answered := call(""); answered != (i < 4) {
			t.Errorf("connection %d of a stranger is answered: %v", i, answered)
		}
	}
	if f := d.figures(); f.Open != 9 || f.Strange != 4 {
		t.Errorf("figures %+v", f)
	}
}
