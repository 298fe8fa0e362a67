package web

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"getwork/schema/schematest"
)

const bank = "https://getwork.bank.example"

// status returns the status of an answer, which need not end.
func (n *station) status(t *testing.T, method, path string, h headers) int {
	t.Helper()
	r := n.request(t, method, path, h, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	response, err := n.Client().Do(r.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// The server answers to the host of its public URL. Only health checks may ask for any.
func TestOnlyThePublicHost(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{public: bank})
	own := []string{"getwork.bank.example", "GetWork.bank.example", "getwork.bank.example:443"}
	others := []string{"evil.example", "getwork.bank.example.evil.example", "getwork.bank.example:8443", "getwork.bank.example:80",
		"getwork.bank.example.", "x.getwork.bank.example", "localhost", "127.0.0.1", "10.0.0.11:8080"}
	paths := map[string]int{"/": 200, "/api/v1/me": 200, "/api/v1/events": 200, "/api/v1/ws": 200, "/openapi.json": 200, "/static/getwork.js": 200,
		"/problems/invalid": 200, "/nothing": 404, "/metrics": 404, "/login": 404}
	for path, want := range paths {
		for _, host := range own {
			if got := n.status(t, "GET", path, headers{"Host", host, "Authorization", "Bearer mia", "Upgrade", "websocket"}); got != want {
				t.Errorf("%s of %s: %d, want %d", path, host, got, want)
			}
		}
		for _, host := range others {
			if got := n.status(t, "GET", path, headers{"Host", host, "Authorization", "Bearer mia", "Upgrade", "websocket"}); got != 421 {
				t.Errorf("%s of %s: %d, want 421", path, host, got)
			}
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/readyz?verbose"} {
		for _, host := range append(own, others...) {
			if got := n.status(t, "GET", path, headers{"Host", host}); got != 200 {
				t.Errorf("%s of %s: %d", path, host, got)
			}
		}
	}
	n.call(t, "GET", "/api/v1/me", headers{"Host", "evil.example", "Authorization", "Bearer mia"}, "").refused(421, "invalid")
}

// The public host is one and the same to what comes behind the guard, such as the log-in and the socket, however a client writes it.
func TestPublicHostIsWrittenOneWay(t *testing.T) {
	t.Parallel()
	for public, hosts := range map[string][]string{
		bank:                    {"getwork.bank.example", "GetWork.bank.example", "getwork.bank.example:443"},
		bank + ":8443":          {"getwork.bank.example:8443"},
		"http://localhost":      {"localhost", "localhost:80"},
		"http://localhost:8080": {"localhost:8080", "LOCALHOST:8080"},
	} {
		u, err := url.Parse(public)
		if err != nil {
			t.Fatal(err)
		}
		s := &server{Config: Config{PublicURL: u, LogInBy: "oidc"}}
		for _, host := range hosts {
			seen := ""
			h := s.here(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Host }))
			r := httptest.NewRequestWithContext(t.Context(), "GET", public+"/api/v1/ws", nil)
			r.Host, r.RemoteAddr = host, "127.0.0.1:1"
			h.ServeHTTP(httptest.NewRecorder(), r)
			if seen != u.Host || r.Host != host {
				t.Errorf("%s of %s: %q behind the guard, and %q before it", host, public, seen, r.Host)
			}
		}
	}
}

// Over plain HTTP, only the machine itself and proxies that end TLS are answered, apart from health checks.
func TestPlainHTTPFromStrangers(t *testing.T) {
	t.Parallel()
	public, err := url.Parse(bank)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Config: Config{PublicURL: public, LogInBy: "token", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}}}
	h := s.here(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		address, from string
		want          int
	}{
		{"http://getwork.bank.example/api/v1/me", "203.0.113.5:1", 421},
		{"http://getwork.bank.example/api/v1/me", "[2001:db8::1]:1", 421},
		{"http://getwork.bank.example/api/v1/me", "", 421},
		{"https://getwork.bank.example/api/v1/me", "203.0.113.5:1", 200},
		{"http://getwork.bank.example/api/v1/me", "10.1.2.3:1", 200},
		{"http://getwork.bank.example/api/v1/me", "[::ffff:10.1.2.3]:1", 200},
		{"http://getwork.bank.example/api/v1/me", "127.0.0.1:1", 200},
		{"http://getwork.bank.example/api/v1/me", "[::1]:1", 200},
		{"http://10.0.0.11:8080/readyz", "203.0.113.5:1", 200},
		{"http://10.0.0.11:8080/livez", "203.0.113.5:1", 200},
	} {
		r, w := httptest.NewRequest("GET", tt.address, nil), httptest.NewRecorder()
		r.RemoteAddr = tt.from
		r.Header.Set("X-Forwarded-For", "10.1.2.3")
		r.Header.Set("X-Forwarded-Proto", "https")
		if h.ServeHTTP(w, r); w.Code != tt.want {
			t.Errorf("%s from %q: %d, want %d", tt.address, tt.from, w.Code, tt.want)
		}
	}
}

// Commands and sockets are refused from every page but the server's own, whose scheme counts; so are reads that another
// site's page sends, but not links on it.
func TestOrigins(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	plain, encrypted := start(t, stationOptions{}), start(t, stationOptions{tls: true})
	behind := start(t, stationOptions{public: "https://localhost:8443", dev: true})
	public := start(t, stationOptions{public: bank})
	who := headers{"X-Getwork-User", "mia", "X-Getwork-Role", "manager", "Authorization", "Bearer mia"}
	for _, n := range []struct {
		name string
		*station
		host       string
		own, other []string
	}{
		{"dev", plain, "localhost:8080", []string{"http://localhost:8080"},
			[]string{"http://LOCALHOST:8080", "https://localhost:8080", "http://localhost", "http://127.0.0.1:8080", "http://localhost:8081"}},
		{"dev with TLS", encrypted, "localhost:8080", []string{"https://localhost:8080"}, []string{"http://localhost:8080"}},
		{"dev behind a proxy", behind, "localhost:8443", []string{"https://localhost:8443", "http://localhost:8443"}, []string{"https://localhost"}},
		{"token", public, "getwork.bank.example", []string{bank},
			[]string{"http://getwork.bank.example", bank + ":443", bank + ":8443", "https://x.getwork.bank.example", bank + "/", "HTTPS://getwork.bank.example"}},
	} {
		h := append(headers{"Host", n.host}, who...)
		others := append([]string{"null", "", "https://evil.example", "x"}, n.other...)
		for path, allowed := range map[string]int{"POST /api/v1/tasks": 400, "DELETE /api/v1/requests/1": 404, "PATCH /api/v1/tasks/none": 404, "GET /api/v1/ws": 200} {
			method, path, _ := strings.Cut(path, " ")
			h := append(headers{}, h...)
			call := func(more ...string) int { return n.status(t, method, path, append(append(headers{}, h...), more...)) }
			if path == "/api/v1/ws" {
				h = append(h, "Upgrade", "websocket")
			}
			if got := call(); got != allowed {
				t.Errorf("%s: %s %s of a program: %d, want %d", n.name, method, path, got, allowed)
			}
			for _, origin := range n.own {
				if got := call("Origin", origin); got != allowed {
					t.Errorf("%s: %s %s of a page of %s: %d, want %d", n.name, method, path, origin, got, allowed)
				}
				if got := call("Origin", origin, "Origin", origin); got != 403 {
					t.Errorf("%s: %s %s with two origins: %d", n.name, method, path, got)
				}
			}
			for _, origin := range others {
				if got := call("Origin", origin); got != 403 {
					t.Errorf("%s: %s %s of a page of %q: %d, want 403", n.name, method, path, origin, got)
				}
				if got := call("Origin", origin, "Sec-Fetch-Site", "same-origin"); got != 403 {
					t.Errorf("%s: %s %s of a page of %q that says it is ours: %d, want 403", n.name, method, path, origin, got)
				}
			}
		}
		for _, path := range []string{"/api/v1/me", "/api/v1/events"} {
			h := append(headers{"Host", n.host}, who...)
			for _, tt := range []struct {
				more headers
				want int
			}{
				{nil, 200},
				{headers{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, 200},
				{headers{"Sec-Fetch-Site", "same-site"}, 200},
				{headers{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
				{headers{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
				{headers{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
				{headers{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, 403},
				{headers{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
				{headers{"Sec-Fetch-Site", "cross-site"}, 403},
			} {
				if got := n.status(t, "GET", path, append(append(headers{}, h...), tt.more...)); got != tt.want {
					t.Errorf("%s: %s with %v: %d, want %d", n.name, path, tt.more, got, tt.want)
				}
			}
		}
	}
	for _, path := range []string{"/", "/docs", "/tasks"} { // not of the API
		if got := public.status(t, "GET", path, headers{"Host", "getwork.bank.example", "Sec-Fetch-Site", "cross-site"}); got != 200 {
			t.Errorf("%s from another site: %d", path, got)
		}
	}
	// An issuer's server posts without any page.
	if got := public.status(t, "POST", "/auth/backchannel", headers{"Host", "getwork.bank.example", "Origin", "https://issuer.example"}); got == 403 {
		t.Error("an issuer's server is taken for another site's page")
	}
}

// What is private is not stored by caches, addresses with codes in them are sent to nobody, and browsers remember https.
func TestHeadersOfIdentity(t *testing.T) {
	t.Parallel()
	dev, local, public := start(t, stationOptions{public: "https://localhost:8443", dev: true}), start(t, stationOptions{public: "http://127.0.0.1:8080"}), start(t, stationOptions{public: bank})
	const remember = "max-age=31536000"
	for _, tt := range []struct {
		*station
		host, path            string
		hsts, cache, referrer string
	}{
		{public, "getwork.bank.example", "/api/v1/me", remember, "no-store", "same-origin"},
		{public, "getwork.bank.example", "/api/v1/nothing", remember, "no-store", "same-origin"},
		{public, "getwork.bank.example", "/api/v1/ws", remember, "no-store", "same-origin"}, // answered by another handler
		{public, "getwork.bank.example", "/auth/nothing", remember, "no-store", "no-referrer"},
		{public, "getwork.bank.example", "/", remember, "no-cache", "same-origin"},
		{public, "evil.example", "/", remember, "no-store", "same-origin"},
		{local, "127.0.0.1:8080", "/", "", "no-cache", "same-origin"},
		{dev, "localhost", "/api/v1/me", "", "no-store", "same-origin"},
	} {
		r := tt.request(t, "GET", tt.path, headers{"Host", tt.host, "Authorization", "Bearer mia", "Upgrade", "websocket"}, "")
		response, err := tt.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		for name, want := range map[string]string{"Strict-Transport-Security": tt.hsts, "Cache-Control": tt.cache, "Referrer-Policy": tt.referrer} {
			if got := response.Header.Get(name); got != want {
				t.Errorf("%s of %s: %s is %q, want %q", tt.path, tt.host, name, got, want)
			}
		}
	}
}

// The figures have a listener of their own, which serves nothing else.
func TestMetricsAlone(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	_, alone := Handlers(Config{Engine: n.engine, Feed: n.feed, Records: n.engine.Records, LogInBy: "token", Log: slog.New(slog.DiscardHandler)})
	for path, want := range map[string]int{"GET /metrics": 200, "HEAD /metrics": 200, "POST /metrics": 405, "GET /": 404, "GET /readyz": 404, "GET /api/v1/me": 404} {
		method, path, _ := strings.Cut(path, " ")
		w := httptest.NewRecorder()
		if alone.ServeHTTP(w, httptest.NewRequest(method, path, nil)); w.Code != want {
			t.Errorf("%s %s: %d, want %d", method, path, w.Code, want)
		}
	}
}

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
