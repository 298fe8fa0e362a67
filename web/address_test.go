package web

import (
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

// The client's address is the last one on the way that is no trusted proxy's, whatever the client wrote itself.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	s := &server{Config: Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/8")}}}
	for _, tt := range []struct {
		peer string
		via  []string
		want string
	}{
		{"203.0.113.5:1", nil, "203.0.113.5"},
		{"203.0.113.5:1", []string{"192.0.2.1"}, "203.0.113.5"}, // a stranger says who they are
		{"203.0.113.5:1", []string{"10.0.0.1"}, "203.0.113.5"},
		{"10.0.0.1:1", nil, "10.0.0.1"},
		{"10.0.0.1:1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"[::ffff:10.0.0.1]:1", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"10.0.0.1:1", []string{"10.0.0.9, 192.0.2.1"}, "192.0.2.1"},               // 10.0.0.9 is invented
		{"10.0.0.1:1", []string{"198.51.100.1, 192.0.2.1, 10.0.0.2"}, "192.0.2.1"}, // two proxies
		{"10.0.0.1:1", []string{"198.51.100.1", "192.0.2.1", "10.0.0.2"}, "192.0.2.1"},
		{"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"}, // the call comes from a proxy's own machine
		{"10.0.0.1:1", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		{"10.0.0.1:1", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"10.0.0.1:1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"[fd00::1]:1", []string{"2001:db8::1%eth0"}, "2001:db8::1"},
		{"10.0.0.1:1", []string{"192.0.2.1, unknown"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"192.0.2.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:1", []string{"192.0.2.1,"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"192.0.2.1", ""}, "10.0.0.1"},
		{"not an address", []string{"192.0.2.1"}, "invalid IP"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.peer
		for _, v := range tt.via {
			r.Header.Add("X-Forwarded-For", v)
		}
		if got := client(r, s.TrustedProxies).String(); got != tt.want {
			t.Errorf("%s via %q: %s, want %s", tt.peer, tt.via, got, tt.want)
		}
	}
}

// Each address has its own tokens, which come back with time; a /64 of IPv6 is one address.
func TestAddressLimit(t *testing.T) {
	t.Parallel()
	now := time.Duration(0)
	l := NewAddressLimit(30)
	l.since = func() time.Duration { return now }
	take := func(a string, n int, want bool, after time.Duration) {
		t.Helper()
		if got, wait := l.Allow(netip.MustParseAddr(a), n); got != want || wait != after {
			t.Errorf("%s at %v: %v, again after %v; want %v, %v", a, now, got, wait, want, after)
		}
	}
	for range 30 {
		take("192.0.2.1", 1, true, 0)
	}
	take("192.0.2.1", 1, false, 2*time.Second)
	take("::ffff:192.0.2.1", 1, false, 2*time.Second)
	take("192.0.2.1", 0, false, 2*time.Second)
	take("192.0.2.1", 5, false, 10*time.Second)
	take("192.0.2.2", 1, true, 0)
	now += 2 * time.Second
	take("192.0.2.1", 0, true, 0) // asking takes none
	take("192.0.2.1", 0, true, 0)
	take("192.0.2.1", 1, true, 0)
	take("192.0.2.1", 1, false, 2*time.Second)
	now += time.Hour
	take("192.0.2.1", 31, false, 2*time.Second) // never more than the bucket holds
	take("192.0.2.1", 30, true, 0)

	take("2001:db8::1", 30, true, 0)
	take("2001:db8::2", 1, false, 2*time.Second)
	take("2001:db8:0:1::2", 1, true, 0)
}

// The limit remembers the latest addresses, and no more than it may.
func TestAddressLimitForgets(t *testing.T) {
	t.Parallel()
	l := NewAddressLimit(30)
	l.since = func() time.Duration { return 0 }
	l.half = 100
	one := netip.MustParseAddr("192.0.2.1")
	l.Allow(one, 30)
	for i := range 250 {
		allowed, _ := l.Allow(one, 0)
		if known := i < 200; allowed == known {
			t.Fatalf("after %d other addresses the first one is allowed: %v", i, allowed)
		}
		l.Allow(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 1)
		if n := len(l.newer) + len(l.old); n > 200 {
			t.Fatalf("%d addresses are remembered, at most 200 may be", n)
		}
	}
}
