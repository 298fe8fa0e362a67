package access

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/proxy"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// otherVersion is the name of a version that is not this one.
const otherVersion = "/static/ffffffffffff/"

var ownVersion = regexp.MustCompile(`/static/[0-9a-f]{12}/`)

// upgraded is a node that replace replaces by one with another version of the page: its page names other files, and the
// earlier files are gone. Its connections end then, too.
func upgraded(t *testing.T, n *cluster.Node) (address string, replace func()) {
	t.Helper()
	target, err := url.Parse(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	var replaced atomic.Bool
	var own atomic.Value // the version's folder
	transport := &http.Transport{}
	forward := &httputil.ReverseProxy{
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0), // browsers leave in the middle of things
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Header.Del("Accept-Encoding")
			r.Out.Header.Del("If-None-Match")
			if replaced.Load() {
				folder := own.Load().(string)
				path := r.In.URL.Path
				r.Out.URL.Path = strings.Replace(strings.Replace(path, folder, "/gone/", 1), otherVersion, folder, 1)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
				return nil
			}
			page, err := io.ReadAll(r.Body)
			own.CompareAndSwap(nil, string(ownVersion.Find(page)))
			if replaced.Load() {
				page = ownVersion.ReplaceAllLiteral(page, []byte(otherVersion))
			}
			r.Body = io.NopCloser(bytes.NewReader(page))
			r.Header.Set("Content-Length", strconv.Itoa(len(page)))
			return err
		},
	}
	server := httptest.NewServer(forward)
	line, err := proxy.Start(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		line.Close()
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return "http://" + line.Addr(), func() {
		replaced.Store(true)
		line.Cut()
	}
}

// loadedFrom waits until the page that is shown has that version.
func loadedFrom(b *page.Browser, folder string) {
	b.T.Helper()
	b.Await(`document.querySelector('script[src="`+folder+`page.js"]')`, e2e.Soon)
}

// A node is replaced by a newer one while the page is open: the page goes on, and offers the new version. It reloads by
// itself only if a view is opened that the old version can't load any more.
func TestPageUpgrade(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 5) i`)
	address, replace := upgraded(t, s.Nodes[0])
	b.Do(chromedp.Navigate(address + "/#log-in=Mary,manager"))
	b.State("live", e2e.Soon)
	b.Await(`document.querySelector('#newer').hidden`, e2e.Soon)
	replace()
	b.Await(`document.querySelector('#newer').checkVisibility()`, e2e.Soon)
	b.State("live", e2e.Soon)
	b.Click(".task .get")
	b.Works(3, e2e.Soon)
	b.Eval(`(document.querySelector('#views a[href="/floor"]').click(), '')`)
	loadedFrom(b, otherVersion)
	b.Await(`location.pathname === '/floor' && document.querySelector('[data-view="floor"] > *')`, e2e.Soon)
	b.State("live", e2e.Soon)
	b.Await(`document.querySelector('#newer').hidden`, e2e.Soon)
	if !b.Forgives("/look/floor.css") { // Chromium complains about the type of the answer that there is no such file any more
		t.Error("the style sheet of the former version was there")
	}
}

// While nodes of two versions answer in turn, a proxy configured as in docs/proxy.md asks the next node for files that
// one does not have; the page is entirely of one version.
func TestPageOfTwoVersions(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for name, behind := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loadsWhole(t, behind)
		})
	}
}

func loadsWhole(t *testing.T, behind func(*testing.T, []string, func(string) string) string) {
	t.Helper()
	s := e2e.NewSite(t, 2, "")
	other, replace := upgraded(t, s.Nodes[1])
	if _, err := (cluster.Client{URL: other}).Do(t.Context(), "GET", "/", nil); err != nil {
		t.Fatal(err)
	}
	replace()
	url := behind(t, []string{s.Nodes[0].URL, other}, nil)
	b := page.NewBrowser(t, "")
	b.Do(chromedp.Navigate(url + "/#log-in=Mary,manager"))
	versions := map[string]bool{}
	e2e.Await(t, "both versions were loaded", 4*e2e.Soon, func() bool {
		b.State("live", e2e.Soon)
		b.Await(`document.querySelector('#view > *')?.childElementCount`, e2e.Soon)
		folders := b.Eval(`[...new Set(performance.getEntriesByType('resource').map((e) => new URL(e.name).pathname.match(/^\/static\/[0-9a-f]{12}\//)?.[0]))].filter(Boolean).join()`)
		if strings.Contains(folders, ",") {
			t.Errorf("one page has modules of several versions: %s", folders)
		}
		versions[folders] = true
		b.Opens(url + "/floor")
		return len(versions) > 1
	})
}

// A page whose modules can't be loaded says so, and what to do.
func TestPageThatDoesNotLoad(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	n := s.Nodes[0]
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := n.Client("Oliver").Do(r.Context(), "GET", r.URL.Path, nil)
		if err != nil || strings.HasSuffix(r.URL.Path, ".js") {
			w.Header().Set("Content-Type", "text/javascript") // of another type it would be a mistake, for the console
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", a.Header.Get("Content-Type"))
		_, _ = w.Write(a.Body)
	}))
	t.Cleanup(gone.Close)
	b := page.NewBrowser(t, "")
	b.Do(chromedp.Navigate(gone.URL))
	b.Await(`getComputedStyle(document.querySelector('#not-loaded')).visibility === 'visible'`, e2e.Soon)
}

// A page of which a module can't be loaded for a moment loads itself again, as soon as somebody answers.
func TestPageLoadsItselfAgain(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	const times = 2
	var pages, asked atomic.Int64
	g := page.BehindGateway(e2e.NewSite(t, 1, ""))
	g.Refusing(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Sec-Fetch-Dest") == "document" {
			pages.Add(1)
		}
		asks := r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Dest") == "empty" && pages.Load() <= times
		refused := asks && asked.Add(1) == 1 || strings.HasSuffix(r.URL.Path, "/words.js") && pages.Load() <= times
		if refused {
			w.WriteHeader(http.StatusBadGateway)
		}
		return refused
	})
	b := page.NewBrowser(t, `window.setTimeout = ((real) => (f, ms, ...more) => real(f, ms / 10, ...more))(window.setTimeout)`) // or it would take 70 s
	b.Do(chromedp.Navigate(g.URL + "/#log-in=Oliver"))
	b.Await(`document.querySelector('#name').textContent === 'Oliver'`, e2e.Soon)
	if n, m := pages.Load(), asked.Load(); n != times+1 || m != 3 {
		t.Errorf("the page was loaded %d times after asking %d times, want %d and 3", n, m, times+1)
	}
}

// A view that can't be loaded, because the server is away for a moment, says so, and is shown at the next attempt.
func TestPageViewThatDoesNotLoad(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	g := page.BehindGateway(e2e.NewSite(t, 1, ""))
	b.Visit(g.URL, "/people", "Mia,manager")
	for _, view := range []struct{ link, file, why, shows string }{
		{"/items", "/items.css", "its style sheet can’t be loaded", `#item`},
		{"/floor", "/views/floor.js", "a part of this page can’t be loaded now; try again in a moment", `h1`},
	} {
		g.Refusing(func(w http.ResponseWriter, r *http.Request) bool {
			refused := strings.HasSuffix(r.URL.Path, view.file)
			if refused {
				w.Header().Set("Content-Type", "text/css") // of another type it would be a mistake, for the console
				w.WriteHeader(http.StatusBadGateway)
			}
			return refused
		})
		link := fmt.Sprintf(`#views a[href="%s"]`, view.link)
		b.Press(link)
		b.Shows("#view .error", "This view can’t be shown: "+view.why)
		g.Refusing(nil)
		b.Press(link)
		b.Await(fmt.Sprintf(`document.querySelector('#view %s')`, view.shows), e2e.Soon)
	}
	b.Await(`[...document.styleSheets].some((sheet) => sheet.href?.endsWith('/items.css'))`, e2e.Soon)
}
