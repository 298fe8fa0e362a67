package look

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// traffic is what a browser loads.
type traffic struct {
	mu   sync.Mutex
	open map[network.RequestID]string // the addresses of loads under way
	size map[string]int               // bytes on the line, including headers, by address
	last time.Time                    // the last beginning or end of a load
}

// watchTraffic counts what the browser loads from now on.
func watchTraffic(b *page.Browser) *traffic {
	b.T.Helper()
	l := &traffic{}
	l.begin()
	if err := chromedp.Listen(b.Context(), l.listen); err != nil {
		b.T.Fatal(err)
	}
	b.Do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, network.Enable, network.EnableParams{})
		return err
	}))
	return l
}

func (l *traffic) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open, l.size, l.last = map[network.RequestID]string{}, map[string]int{}, time.Now()
}

func (l *traffic) listen(event any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if strings.HasPrefix(e.Request.URL, "http") {
			l.open[e.RequestID] = e.Request.URL
		}
	case *network.EventLoadingFinished:
		path, ours := l.open[e.RequestID]
		if _, again := l.size[path]; ours && !(again && isData(path)) && e.EncodedDataLength > 0 { // 0: from the cache
			l.size[path] += int(e.EncodedDataLength)
		}
		delete(l.open, e.RequestID)
	case *network.EventLoadingFailed:
		delete(l.open, e.RequestID)
	default:
		return
	}
	l.last = time.Now()
}

// isData reports whether an address has data, which a view reads again and again: how often until the test looks depends on
// the machine. Only the first time counts, which is part of opening the view.
func isData(address string) bool { return strings.Contains(address, "/api/") }

// quiet reports whether no load is under way, and none was for a while, since the last loads begin only after others
// have ended.
func (l *traffic) quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open) == 0 && time.Since(l.last) > 500*time.Millisecond
}

// sum returns the bytes of all loads, and of the page's own files.
func (l *traffic) sum() (all, files int, names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path, size := range l.size {
		all += size
		if _, name, found := strings.Cut(path, "/static/"); found {
			files += size
			names = append(names, name)
		}
	}
	return all, files, names
}

// maxView is how many bytes opening a view may cost, with the tables of its language.
const maxView = 140 << 10

// Each view loads in less than 140 KiB compressed, and loads no file again the second time. Its page names every module
// that the view begins with: no module is found only by another's import.
func TestPageSize(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 5) i`)
	url := s.Nodes[0].URL
	l := watchTraffic(b)
	b.Do(chromedp.Navigate(url + "/#log-in=Mia,manager"))
	b.State("live", e2e.Soon)
	loads(b, l, url, "/", "/floor", "/tasks", "/items", "/people", "/webhooks", "/wall?task=verify")
}

// The same for people with a session, whose menu and warning are loaded besides, and in German.
func TestPageSizeInABank(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	at := page.NewBank(t)
	at.Task("verify", `select i as item from generate_series(1, 5) i`)
	b := page.NewBrowser(t, "")
	opensAt(b, at, "/", "Boris")
	b.State("live", e2e.Soon)
	l := watchTraffic(b)
	loads(b, l, at.Address, "/tasks/verify", "/account", "/users", "/audit")
	speaks(b, "de") // the largest views: others have room for their tables
	loads(b, l, at.Address, "/", "/floor", "/tasks", "/tasks/verify", "/items", "/users?user=Boris", "/webhooks")
}

// loads opens views, and checks what that costs.
func loads(b *page.Browser, l *traffic, url string, views ...string) {
	t := b.T
	t.Helper()
	for _, view := range views {
		var sums [2]int
		for i, again := range []bool{false, true} {
			b.Cached(again)
			b.Do(chromedp.Navigate("about:blank"))
			l.begin()
			b.Do(chromedp.Navigate(url + view))
			b.State("live", e2e.Soon)
			b.Await(`document.querySelector('#view > *')?.childElementCount`, e2e.Soon)
			e2e.Await(t, "no load is under way", e2e.Soon, l.quiet)
			all, files, names := l.sum()
			sums[i] = all
			switch {
			case !again && (files == 0 || all >= maxView):
				t.Errorf("%s: %d bytes were loaded, %d of them files; it may be %d", view, all, files, maxView)
			case again && files > 0:
				t.Errorf("%s: loaded once more: %v", view, names)
			}
			if found := b.Eval(foundOut); !again && found != "" {
				t.Errorf("%s imports modules that its page does not name: %s", view, found)
			}
		}
		t.Logf("%-2s %-18s %6d bytes at first, %6d again", cmp.Or(b.Lang, "en"), view, sums[0], sums[1])
	}
}

// foundOut returns modules that were imported, but not named in the page: all but those that wait until the user is known, and the
// tables of a language, which the page can't know.
const foundOut = `performance.getEntriesByType('resource').map((e) => e.name)
	.filter((name) => name.endsWith('.js') && !/\/(session|away)\.js$/.test(name) && !name.includes('/lang/') && !document.querySelector('head > [href="' + new URL(name).pathname + '"], head > [src="' + new URL(name).pathname + '"]')).join(' ')`
