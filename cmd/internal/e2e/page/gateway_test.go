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

	"getwork/cmd/internal/e2e"
)

// gateway is a proxy in front of a node. It refuses calls as a test says, and records when dispositions were sent.
type gateway struct {
	URL    string
	mu     sync.Mutex
	refuse func(w http.ResponseWriter, r *http.Request) bool // reports whether it has answered; nil: nothing is refused
	sent   []time.Time                                       // when each disposition was sent
}

// behindGateway starts a gateway in front of the site's first node.
func (s *site) behindGateway() *gateway {
	s.T.Helper()
	target, err := url.Parse(s.Nodes[0].URL)
	if err != nil {
		s.T.Fatal(err)
	}
	transport := &http.Transport{}
	to := &httputil.ReverseProxy{Transport: transport, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
	}}
	g := &gateway{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		if isDisposition(r) {
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

func isDisposition(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/disposition") }

// refuses makes it answer dispositions with that status that many times, or always if often is negative.
func (g *gateway) refuses(status, often int, retryAfter string) {
	var left atomic.Int64
	left.Store(int64(often))
	g.refusing(func(w http.ResponseWriter, r *http.Request) bool {
		if !isDisposition(r) || often >= 0 && left.Add(-1) < 0 {
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

func (g *gateway) refusing(refuse func(w http.ResponseWriter, r *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse, g.sent = refuse, nil
}

// dispositions returns when dispositions were sent since the last change of what is refused.
func (g *gateway) dispositions() []time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sent)
}

// cuttable is a page script with which a test can cut the page's sockets.
const cuttable = `(() => {
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

// cutOff cuts the page's socket, and waits until the page is live with another.
func (b *browser) cutOff() {
	b.t.Helper()
	b.eval(`(window.before = sockets, cut(), '')`)
	b.await(`sockets > before && document.querySelector('#chip').dataset.state === 'live'`, 2*e2e.Soon)
}

// behind is desk with a gateway in between.
func behind(t *testing.T, held int) (*browser, *site, *gateway) {
	t.Helper()
	b := newBrowser(t, cuttable+undoLasts)
	s := newSite(t, 1, "")
	leased(s, "1h", "a", "b", "c", "d", "e")
	g := s.behindGateway()
	b.logIn(g.URL, "Oliver")
	b.state("live", e2e.Soon)
	s.Takes("Oliver", held)
	b.works(held, e2e.Soon)
	return b, s, g
}
