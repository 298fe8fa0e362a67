package page

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
)

// Gateway is a proxy in front of a node. It refuses calls as a test says, and records when dispositions were sent.
type Gateway struct {
	URL    string
	mu     sync.Mutex
	refuse func(w http.ResponseWriter, r *http.Request) bool // reports whether it has answered; nil: nothing is refused
	sent   []time.Time                                       // when each disposition was sent
}

// BehindGateway starts a gateway in front of the site's first node.
func BehindGateway(s *e2e.Site) *Gateway {
	s.T.Helper()
	target, err := url.Parse(s.Nodes[0].URL)
	if err != nil {
		s.T.Fatal(err)
	}
	transport := &http.Transport{}
	to := &httputil.ReverseProxy{Transport: transport, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
	}}
	g := &Gateway{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		if IsDisposition(r) {
			g.sent = append(g.sent, time.Now())
		}
		refuse := g.refuse
		g.mu.Unlock()
		if refuse == nil || !refuse(w, r) {
			to.ServeHTTP(w, r)
		}
	}))
	s.T.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	g.URL = server.URL
	return g
}

// IsDisposition reports whether a call lets go of work.
func IsDisposition(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/disposition") }

// Refuses makes it answer dispositions with that status that many times, or always if often is negative.
func (g *Gateway) Refuses(status, often int, retryAfter string) {
	var left atomic.Int64
	left.Store(int64(often))
	g.Refusing(func(w http.ResponseWriter, r *http.Request) bool {
		if !IsDisposition(r) || often >= 0 && left.Add(-1) < 0 {
			return false
		}
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"type":"about:blank","title":"refused","detail":"refused with %d","status":%[1]d}`, status)
		return true
	})
}

// Refusing makes it answer whatever refuse answers, and forget what was sent before.
func (g *Gateway) Refusing(refuse func(w http.ResponseWriter, r *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse, g.sent = refuse, nil
}

// Dispositions returns when dispositions were sent since the last change of what is refused.
func (g *Gateway) Dispositions() []time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sent)
}

// Cuttable is a page script with which a test can cut the page's sockets.
const Cuttable = `(() => {
	const { WebSocket } = window;
	window.sockets = 0;
	window.WebSocket = class extends WebSocket {
		constructor(...args) {
			super(...args);
			window.sockets++;
			window.cut = () => this.close();
		}
	};
})();`

// Behind is a browser at the desk of Oliver, who holds that many items, with a gateway between it and the node.
func Behind(t *testing.T, held int) (*Browser, *e2e.Site, *Gateway) {
	t.Helper()
	b := NewBrowser(t, Cuttable+UndoLasts)
	s := e2e.NewSite(t, 1, "")
	Leased(s, "1h", "a", "b", "c", "d", "e")
	g := BehindGateway(s)
	b.LogIn(g.URL, "Oliver")
	b.State("live", e2e.Soon)
	s.Takes("Oliver", held)
	b.Works(held, e2e.Soon)
	return b, s, g
}

// WithoutSockets is a proxy in front of a node. Like some real proxies it refuses to upgrade, until allow is called.
func WithoutSockets(t *testing.T, n *cluster.Node) (address string, allow func()) {
	t.Helper()
	target, err := url.Parse(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
	}}
	var allowed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" && !allowed.Load() {
			http.Error(w, "no upgrade here", http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return server.URL, func() { allowed.Store(true) }
}
