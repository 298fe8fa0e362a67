//go:build unix

package story

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// front is a proxy before a node that counts the calls; without sockets it lets no WebSocket through.
type front struct {
	*httptest.Server
	mu    sync.Mutex
	calls []string
}

func (s *site) front(sockets bool) *front {
	s.T.Helper()
	target, err := url.Parse(s.Nodes[0].URL)
	if err != nil {
		s.T.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	f := new(front)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.calls = append(f.calls, r.Method+" "+r.URL.Path)
		f.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/ws") && !sockets {
			http.Error(w, "no upgrades here", http.StatusNotImplemented)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	s.T.Cleanup(f.Close)
	return f
}

// count returns how often a call was made.
func (f *front) count(method, suffix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if strings.HasPrefix(c, method+" ") && strings.HasSuffix(c, suffix) {
			n++
		}
	}
	return n
}

// With a live channel nothing is read twice, and a lease is extended only as often as it must be.
func TestAgentAsksLittle(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("12s", nil)
	f := s.front(true)
	a := e2e.StartAgent(t, f.URL, "crawl", "--concurrency", "1", "--", "sh", "-c", "sleep $GETWORK_ITEM")
	a.Says("waiting for work", e2e.Soon)
	s.Await("it waits", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	s.push("24")
	s.awaitHistory("24", 70*time.Second, "completed")
	s.Await("it waits again", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	for _, most := range []struct {
		n      int
		method string
		suffix string
	}{{8, "POST", "/extend"}, {1, "POST", "/dispositions"}, {2, "POST", "/tasks/crawl/requests"}, {2, "GET", ""}, {1, "GET", "/ws"}} {
		n := f.count(most.method, most.suffix)
		if most.suffix == "" { // everything except the socket; after a snapshot that may be older than a request the agent reads that request
			n -= f.count("GET", "/ws") + f.count("GET", "/tasks/crawl")
		}
		if n > most.n {
			t.Errorf("%s …%s was asked %d times, want at most %d", most.method, most.suffix, n, most.n)
		}
	}
	if t.Failed() {
		t.Logf("%q", f.calls)
	}
}
