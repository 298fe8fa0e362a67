package page

import (
	"context"
	"errors"
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

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

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

// A busy server is asked again when it said, and no sooner, whatever happens to the page meanwhile. The page says that
// the outcome is kept, and it counts once.
func TestPageOutboxHeedsRetryAfter(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			b, s, g := behind(t, 2)
			b.typeNote("looked at")
			g.refuses(status, 1, "10") // the page says so for that long
			b.press("#work li:first-child .complete")
			b.eval(`(passes(), '')`)
			b.shows("#work .going", "a: completed. The server can’t take it now; it is sent as soon as it can be.")
			b.shows("#heard", "a: The server can’t take it now; it is sent as soon as it can be.")
			b.cutOff() // the connection is back before that
			b.eval(`(Object.defineProperty(document, 'hidden', { value: true, configurable: true }), document.dispatchEvent(new Event('visibilitychange')), '')`)
			b.eval(`(delete document.hidden, document.dispatchEvent(new Event('visibilitychange')), '')`)
			s.disposes("a completed looked at, b held")
			b.works(1, e2e.Soon)
			sent := g.dispositions()
			if len(sent) != 2 {
				t.Fatalf("it was sent %d times, want once more than it was refused", len(sent))
			}
			if waited := sent[1].Sub(sent[0]); waited < 9990*time.Millisecond { // the browser's clock and ours may differ a little
				t.Errorf("it was sent again after %v, and the server had said 10 s", waited)
			}
			b.cutOff()
			b.press("#work .complete")
			b.eval(`(passes(), '')`)
			s.disposes("a completed looked at, b completed")
			if n := len(g.dispositions()); n != 3 {
				t.Errorf("%d dispositions were sent; that of a counts once, and is not sent again", n)
			}
		})
	}
}

// An outcome that the server refuses for good comes back with the typed text and the reason, and can be sent again;
// nothing else is lost.
func TestPageRefusedComesBack(t *testing.T) {
	t.Parallel()
	b, s, g := behind(t, 2)
	b.typeNote("looked at")
	for _, status := range []int{400, 403, 404, 409, 413, 422, 500} {
		g.refuses(status, 1, "")
		b.press("#work li:first-child .complete")
		b.eval(`(passes(), '')`)
		b.shows("#work li:first-child .error", fmt.Sprintf("refused with %d", status))
		b.shows("#told", fmt.Sprintf("a was not let go of: refused with %d", status))
		if note := b.eval(`document.querySelector('#work textarea').value`); note != "looked at" {
			t.Fatalf("%d: the note is %q", status, note)
		}
		if got := s.dispositions(); got != "a held, b held" {
			t.Fatalf("%d: %s", status, got)
		}
		b.eval(`(passes(), '')`)
		if n := len(g.dispositions()); n != 1 {
			t.Errorf("%d: it was sent %d times", status, n)
		}
	}
	b.press("#work li:first-child .complete")
	b.eval(`(passes(), '')`)
	s.disposes("a completed looked at, b held")
	b.works(1, e2e.Soon)
}

// A note that is longer than the server accepts is not sent: the page says so while it is written, and by how much it
// is too long.
func TestPageNoteTooLong(t *testing.T) {
	t.Parallel()
	b, s, g := behind(t, 2)
	g.refuses(0, 0, "")
	b.press("#work li:first-child summary")
	write := func(text string) {
		t.Helper()
		b.eval(fmt.Sprintf(`(() => {
			const note = document.querySelector('#work textarea');
			note.value = %q;
			note.dispatchEvent(new Event('input'));
			return '';
		})()`, text))
	}
	long := strings.Repeat("é", 3000) // 6000 bytes; the same number of ASCII letters would fit
	write(long)
	b.shows("#work li:first-child details .error", "The note is too long by about 952 characters.")
	b.await(`document.querySelector('#work textarea').ariaInvalid === 'true'`, e2e.Soon)
	b.press("#work li:first-child summary") // and away
	for _, button := range []string{".complete", ".next", `[data-return="1h"]`} {
		b.eval(`(document.activeElement.blur(), '')`)
		b.press("#work li:first-child " + button)
		b.await(`document.activeElement.matches('#work textarea')`, e2e.Soon)
		b.shows("#said", "a is not let go of. The note is too long by about 952 characters: shorten it.")
	}
	if same := b.eval(fmt.Sprintf(`String(document.querySelector('#work textarea').value === %q)`, long)); same != "true" {
		t.Error("the note was cut")
	}
	write(strings.Repeat("é", 2048)) // exactly at the limit
	b.await(`!document.querySelector('#work details .error').textContent && document.querySelector('#work textarea').ariaInvalid !== 'true'`, e2e.Soon)
	b.press("#work li:first-child .complete")
	b.eval(`(passes(), '')`)
	s.Await("the note is there as it was written", e2e.Soon, `select octet_length(note) = 4096 and state = 'completed' from getwork.work where item = 'a'`)
	if n := len(g.dispositions()); n != 1 {
		t.Errorf("%d dispositions were sent", n)
	}
}

// After the session has ended the user must log in again; then the outcomes are sent, with their notes.
func TestPageOutboxSessionEnds(t *testing.T) {
	t.Parallel()
	b, s, g := behind(t, 2)
	b.typeNote("looked at")
	b.press("#work li:first-child .complete")
	inPage[any](b, `await fetch('/logout', { method: 'POST' })`) // as if the session had ended
	b.eval(`(passes(), '')`)
	b.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	if got := s.dispositions(); got != "a held, b held" {
		t.Error(got)
	}
	b.logIn(g.URL, "Oliver")
	s.disposes("a completed looked at, b held")
	b.works(1, e2e.Soon)
}

// Another user who logs in then finds nothing of it, and nothing is sent in their name.
func TestPageOutboxSessionTakenOver(t *testing.T) {
	t.Parallel()
	b, s, g := behind(t, 2)
	b.typeNote("looked at")
	b.press("#work li:first-child .complete")
	inPage[any](b, `await fetch('/logout', { method: 'POST' })`) // as if the session had ended
	b.eval(`(passes(), '')`)
	b.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	b.await(`JSON.stringify(sessionStorage).includes('looked at')`, e2e.Soon)
	g.refuses(0, 0, "")
	b.logIn(g.URL, "Tracy")
	b.state("live", e2e.Soon)
	b.leftNothing("looked at", "Oliver")
	s.Takes("Tracy", 1)
	b.works(1, e2e.Soon)
	b.press("#work .complete")
	b.eval(`(passes(), '')`)
	s.disposes("a held, b held, c completed")
	if n := len(g.dispositions()); n != 1 {
		t.Errorf("%d dispositions were sent, want hers", n)
	}
}

// leftNothing checks that neither the page nor the browser's storage for it has any of these texts.
func (b *browser) leftNothing(texts ...string) {
	b.t.Helper()
	all := b.eval(`JSON.stringify([sessionStorage, localStorage]) + document.body.innerText + [...document.querySelectorAll('textarea')].map((e) => e.value)`)
	for _, text := range texts {
		if strings.Contains(all, text) {
			b.t.Errorf("%q is still there: %s", text, all)
		}
	}
}

// A note in progress survives a reload and a crash of the tab, and goes with the work.
func TestPageNoteOutlastsReload(t *testing.T) {
	t.Parallel()
	b, s := desk(t, undoLasts, "1h", 2)
	b.typeNote("half wri")
	b.do(chromedp.Reload())
	b.await(`document.querySelector('#work li:first-child textarea')?.value === 'half wri'`, e2e.Soon)
	b.await(`document.querySelector('#work li:first-child textarea').checkVisibility()`, e2e.Soon) // it is open
	b.do(chromedp.SendKeys(chromedp.CSS("#work li:first-child textarea"), "tten", chromedp.NodeVisible))
	b.crash()
	b.await(`document.querySelector('#work li:first-child textarea')?.value === 'half written'`, e2e.Soon)
	b.press("#work li:first-child .complete")
	b.eval(`(passes(), '')`)
	s.disposes("a completed half written, b held")
	b.await(`!JSON.stringify(sessionStorage).includes('half written')`, e2e.Soon)
	b.eval(`(document.querySelector('#work textarea').value = 'of b', document.querySelector('#work textarea').dispatchEvent(new Event('input')), '')`)
	b.await(`JSON.stringify(sessionStorage).includes('of b')`, e2e.Soon)
	b.do(chromedp.Navigate("about:blank"))
	s.manages("POST", fmt.Sprintf("/work/%d/reassign", column[int64](s, `select id from getwork.work where item = 'b'`)[0]), map[string]any{"user": "Tracy"})
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	b.works(0, e2e.Soon)
	b.state("live", e2e.Soon)
	b.await(`!JSON.stringify(sessionStorage).includes('of b')`, e2e.Soon)
}

// crash ends the tab's process, as a crash would, and reloads the page, as its user would.
func (b *browser) crash() {
	b.t.Helper()
	b.crashes()
	b.do(chromedp.Reload())
}

// crashes ends the tab's process, as a crash would.
func (b *browser) crashes() {
	b.t.Helper()
	ctx, crashed := context.WithTimeout(b.ctx, e2e.Soon)
	defer crashed()
	err := chromedp.Listen(b.ctx, func(event any) { // a page that has crashed does not answer
		if _, ended := event.(*inspector.EventTargetCrashed); ended {
			crashed()
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	_ = chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, page.Crash, cdp.Empty{})
		return err
	}))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		b.t.Fatal("the page did not crash")
	}
}

// leavesAllTheSame answers the browser's question before leaving while something is not sent. The browser asks only
// users who have used the page.
func (b *browser) leavesAllTheSame() { b.answersYes(func() {}) }

// leavesUnasked leaves, and fails the test if the browser asks.
func (b *browser) leavesUnasked() {
	b.answersYes(func() { b.t.Error("the browser asks whether to leave") })
}

func (b *browser) answersYes(asked func()) {
	b.t.Helper()
	err := chromedp.Listen(b.ctx, func(event any) {
		if _, question := event.(*page.EventJavascriptDialogOpening); !question {
			return
		}
		asked()
		go func() { // a listener must not wait
			_ = chromedp.Do(b.ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
				_, err := cdp.Call(ctx, tab, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
				return err
			}))
		}()
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Outcomes that can't be sent are sent after a reload, even if the server was away for that, too.
func TestPageOutboxOutlastsReload(t *testing.T) {
	t.Parallel()
	b, s := desk(t, undoLasts, "1h", 2)
	b.leavesAllTheSame()
	b.typeNote("no line")
	b.press("#work li:first-child .complete")
	s.Nodes[0].Kill()
	b.eval(`(passes(), '')`)
	b.shows("#work .going", "The server can’t be reached now; it is sent as soon as it can be.")
	if err := chromedp.Do(b.ctx, chromedp.Navigate(s.Nodes[0].URL)); err == nil {
		t.Error("the page came from a node that is dead")
	}
	s.Nodes[0].Restart()
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	s.disposes("a completed no line, b held")
	b.works(1, e2e.Soon)
	b.shows("#recent", "a")
	b.await(`!JSON.stringify(sessionStorage).includes('no line')`, e2e.Soon)
}

// The same holds in another view; and a page that can't ask who is logged in tries again by itself.
func TestPageOutboxOutlastsReloadElsewhere(t *testing.T) {
	t.Parallel()
	b, s, g := behind(t, 2)
	b.leavesAllTheSame()
	b.typeNote("no line")
	g.refuses(http.StatusBadGateway, -1, "")
	b.press("#work li:first-child .complete")
	b.eval(`(passes(), '')`)
	b.shows("#work .going", "The server can’t be reached now")
	b.press(`#views a[href="/wall"]`)
	b.await(`document.querySelector('[data-view=wall]')`, e2e.Soon)
	g.refusing(func(w http.ResponseWriter, r *http.Request) bool {
		api := strings.HasPrefix(r.URL.Path, "/api/")
		if api {
			http.Error(w, "bad gateway", http.StatusBadGateway)
		}
		return api
	})
	b.do(chromedp.Reload())
	b.banner("No answer: the server answered with status 502. Trying again every 5 s.", e2e.Soon)
	if shown := b.eval(`String(document.querySelector('#log-in').checkVisibility())`); shown != "false" {
		t.Error("it asks who is logged in, though it does not know of the log-out")
	}
	b.cached(false)
	live := make(chan struct{})
	g.refusing(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/views/desk.js") {
			select { // the pipeline is known before the sender is loaded
			case <-live:
			case <-r.Context().Done():
			}
		}
		return false
	})
	b.await(`document.querySelector('[data-view=wall]')`, e2e.Soon)
	b.shows(".wall-state", "Live")
	close(live)
	s.disposes("a completed no line, b held")
	b.await(`document.querySelector('#banner').hidden`, e2e.Soon)
	b.press(".wall-controls .back")
	b.works(1, e2e.Soon)
}

// A user who opens another view first finds all held work at the desk, and the typed notes.
func TestPageDeskAfterAnotherView(t *testing.T) {
	t.Parallel()
	b, s := desk(t, undoLasts, "1h", 2)
	b.typeNote("half written")
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.Nodes[0].URL+"/wall"))
	b.shows(".wall-state", "Live")
	b.press(".wall-controls .back")
	b.works(2, e2e.Soon)
	b.await(`document.querySelector('#work textarea').value === 'half written'`, e2e.Soon)
	b.await(`!document.querySelector('#told').textContent`, e2e.Soon) // it is not new
}

// After a log-out nothing of the user stays: not in this tab, nor in another, nor in one that was asleep, nor in the
// browser's Back.
func TestPageLogOutLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, undoLasts)
	s := newSite(t, 1, "")
	leased(s, "1h", "a", "b", "c")
	b.visit(s.Nodes[0].URL, "/", "Mia,manager")
	b.state("live", e2e.Soon)
	s.Takes("Mia", 3)
	b.works(3, e2e.Soon)
	b.press("#work li:nth-child(2) .complete")
	b.eval(`(passes(), '')`)
	b.shows("#recent", "b") // a key is a bank's data, too
	b.typeNote("secret of one")
	other, asleep := b.window(), b.window()
	for note, w := range map[string]*browser{"secret of two": other, "secret of three": asleep} {
		w.do(chromedp.Navigate(s.Nodes[0].URL))
		w.works(2, e2e.Soon)
		w.typeNote(note)
		w.await(fmt.Sprintf(`JSON.stringify(sessionStorage).includes(%q)`, note), e2e.Soon)
	}
	asleep.do(chromedp.Navigate("about:blank"))
	b.press(`#views a[href="/floor"]`)
	b.await(`document.querySelector('[data-view=floor]')`, e2e.Soon)
	b.press("#log-out")
	gone := func(w *browser) {
		t.Helper()
		w.await(`document.querySelector('#log-in')?.checkVisibility()`, e2e.Soon)
		w.leftNothing("secret", "Mia", "verify")
	}
	gone(b)
	gone(other)
	asleep.do(chromedp.Navigate(s.Nodes[0].URL))
	gone(asleep)
	b.do(chromedp.NavigateBack())
	gone(b)
	b.eval(`(window.before = true, dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })), '')`) // as a browser does that has kept the page
	b.await(`!window.before`, e2e.Soon)
	gone(b)
	s.disposes("a held, b completed, c held")
}

// A user who logs out while something can't be sent is asked to confirm; and if the log-out fails, the page says so.
func TestPageLogOutUnsent(t *testing.T) {
	t.Parallel()
	b, s, g := behind(t, 3)
	b.typeNote("no line")
	g.refuses(http.StatusServiceUnavailable, -1, "60")
	b.press("#work li:first-child .complete")
	b.eval(`(passes(), '')`)
	b.shows("#work .going", "The server can’t take it now")
	other := b.window() // where something is kept, too
	other.do(chromedp.Navigate(g.URL))
	other.await(`document.querySelectorAll('.complete').length === 2`, e2e.Soon)
	other.click("#work .complete")
	other.shows("#work .going", "b: completed. The server can’t take it now")
	b.shows("#work .going", "b: completed. The server can’t take it now") // the other window has been told
	b.press("#log-out")
	b.shows("dialog", "The server can’t be told now what you did with: a, b.")
	b.press("dialog button[value=no]")
	b.await(`!document.querySelector('dialog')`, e2e.Soon) // until then another log-out is the same one
	b.shows("#work .going", "The server can’t take it now")
	g.refusing(func(w http.ResponseWriter, r *http.Request) bool {
		refused := isDisposition(r) || r.URL.Path == "/logout"
		if refused {
			http.Error(w, "bad gateway", http.StatusBadGateway)
		}
		return refused
	})
	b.press("#log-out")
	b.press("dialog button[value=yes]")
	b.shows("#said", "You are still logged in: the server answered with status 502.")
	b.shows("#work .going", "The server can’t be reached now")
	b.await(`!document.querySelector('dialog')`, e2e.Soon)
	g.refuses(http.StatusServiceUnavailable, -1, "60")
	b.press("#log-out")
	b.press("dialog button[value=yes]")
	for _, w := range []*browser{b, other} { // neither asks anything more
		w.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
		w.leftNothing("no line", "Oliver")
	}
	if got := s.dispositions(); got != "a held, b held, c held" {
		t.Error(got)
	}
}

// If another user logs in in another tab, nothing is sent in their name of what was let go of before, neither waiting
// nor kept outcomes. The page is theirs then, and does not ask before it is left.
func TestPageOutboxAnotherLogsIn(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept %t", kept), func(t *testing.T) {
			b, s, g := behind(t, 2)
			b.leavesUnasked()
			b.typeNote("looked at")
			g.refuses(http.StatusServiceUnavailable, -1, "60")
			b.press("#work li:first-child .complete")
			if kept {
				b.eval(`(passes(), '')`)
				b.shows("#work .going", "The server can’t take it now")
			}
			g.refuses(0, 0, "")
			b.window().visit(g.URL, "/", "Mia,manager") // a manager may let go of what others hold
			b.await(`document.querySelector('#name').textContent === 'Mia' && document.querySelector('#empty')`, e2e.Soon)
			b.leftNothing("looked at", "Oliver")
			if got := s.dispositions(); got != "a held, b held" {
				t.Error(got)
			}
			if n := len(g.dispositions()); n > 0 {
				t.Errorf("%d dispositions were sent in her name", n)
			}
		})
	}
}

// A duplicated tab has everything that is kept. Both tabs send it, and it counts once.
func TestPageOutboxOfADuplicatedTab(t *testing.T) {
	t.Parallel()
	b, s, g := behind(t, 2)
	b.typeNote("looked at")
	g.refuses(http.StatusBadGateway, -1, "")
	b.press("#work li:first-child .complete")
	b.eval(`(passes(), '')`)
	b.shows("#work .going", "The server can’t be reached now")
	stored := b.eval(`JSON.stringify(sessionStorage)`)
	other := b.window()
	other.do(chromedp.Navigate(g.URL))
	other.await(`document.querySelector('#work .complete')`, e2e.Soon)
	other.eval(fmt.Sprintf(`(Object.assign(sessionStorage, JSON.parse(%q)), '')`, stored))
	other.do(chromedp.Reload())
	other.shows("#work .going", "The server can’t be reached now")
	other.press("#log-out")
	other.shows("dialog", "The server can’t be told now what you did with: a. Who stays") // it is named once
	other.press("dialog button[value=no]")
	g.refuses(0, 0, "")
	for _, w := range []*browser{b, other} {
		w.eval(`(Object.defineProperty(document, 'hidden', { value: true, configurable: true }), document.dispatchEvent(new Event('visibilitychange')), delete document.hidden, '')`) // sooner than by itself
	}
	for _, w := range []*browser{b, other} {
		w.works(1, e2e.Soon)
		w.shows("#recent", "a")
		w.await(`!JSON.stringify(sessionStorage).includes('looked at')`, e2e.Soon)
		if told := w.eval(`document.querySelector('#told').textContent`); strings.Contains(told, "not let go of") {
			t.Errorf("it tells %q", told)
		}
	}
	s.disposes("a completed looked at, b held")
}

// A page that got no answer asks who is logged in as soon as the server answers, and then no longer says that there is
// no answer.
func TestPageLogInAfterNoAnswer(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	g := newSite(t, 1, "").behindGateway()
	g.refusing(func(w http.ResponseWriter, r *http.Request) bool {
		api := strings.HasPrefix(r.URL.Path, "/api/")
		if api {
			http.Error(w, "bad gateway", http.StatusBadGateway)
		}
		return api
	})
	b.do(chromedp.Navigate(g.URL))
	b.banner("No answer: the server answered with status 502. Trying again every 5 s.", e2e.Soon)
	g.refusing(nil)
	b.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	if text := b.eval(`document.querySelector('#banner').checkVisibility() ? document.querySelector('#banner').innerText : ''`); text != "" {
		t.Errorf("it still says %q", text)
	}
}

// Pressing Log out again while the server takes its time asks once, and a later log-out still works.
func TestPageLogOutPressedTwice(t *testing.T) {
	t.Parallel()
	b, s, g := behind(t, 2)
	answer := make(chan struct{})
	answered := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(answered)
	g.refusing(func(_ http.ResponseWriter, r *http.Request) bool {
		if isDisposition(r) {
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
		return false
	})
	b.press("#work li:first-child .complete")
	b.eval(`(document.querySelector('#log-out').click(), document.querySelector('#log-out').click(), '')`)
	b.shows("dialog", "The server can’t be told now what you did with: a.")
	b.press("dialog button[value=no]")
	b.await(`!document.querySelector('dialog')`, e2e.Soon)
	answered()
	s.disposes("a completed, b held")
	b.works(1, e2e.Soon) // it has its answer, so nothing is sent any more
	b.press("#log-out")
	b.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
}

// A user with unsaved changes of a task is asked before the log-out, which loses them; also in another view.
func TestPageLogOutUnsaved(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	b.manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.set("set-title", "New one")
	b.eval(`(document.querySelector('#views a[href="/tasks"]').click(), '')`)
	b.await(`document.querySelector('[data-task=verify] a')`, e2e.Soon)
	b.eval(`(document.querySelector('[data-task=verify] a').click(), '')`)
	b.set("set-title", "Mine")
	b.press(`#views a[href="/people"]`)
	b.await(`document.querySelector('[data-view=people]')`, e2e.Soon)
	b.press("#log-out")
	b.shows("dialog", "What you typed is not saved: a new task, verify. If you log out, it is lost.")
	b.press("dialog button[value=no]")
	b.await(`!document.querySelector('dialog')`, e2e.Soon)
	b.press(`#views a[href="/tasks"]`)
	b.shows("[data-task=verify] .badge", "not saved")
	b.press("#log-out")
	b.press("dialog button[value=yes]")
	b.await(`document.querySelector('#log-in')?.checkVisibility()`, e2e.Soon)
	b.leftNothing("Mine", "New one")
}

// A page that leaves by itself does not ask, and does not leave if the same user logs in again in another tab. Kept
// outcomes stay kept.
func TestPageGoesUnasked(t *testing.T) {
	t.Parallel()
	b, _, g := behind(t, 2)
	b.leavesUnasked()
	b.typeNote("looked at")
	g.refuses(http.StatusServiceUnavailable, -1, "60")
	b.press("#work li:first-child .complete")
	b.eval(`(passes(), '')`)
	b.shows("#work .going", "The server can’t take it now")
	const asked = `performance.getEntriesByType('resource').filter((e) => new URL(e.name).pathname === '/api/v1/me').length`
	b.eval(`(window.asked = ` + asked + `, '')`)
	other := b.window()
	other.do(chromedp.Navigate(g.URL))
	other.await(`document.querySelector('#work .going')`, e2e.Soon)
	other.eval(`(new BroadcastChannel('getwork').postMessage('log-in'), '')`) // as after a log-in
	b.await(`!window.asked || `+asked+` > window.asked`, e2e.Soon)
	b.settle()
	if stays := b.eval(`String(window.asked > 0)`); stays != "true" {
		t.Error("it was loaded again")
	}
	inPage[any](b, `await fetch('/logout', { method: 'POST' })`) // as if the session had ended
	b.eval(`(dispatchEvent(new Event('focus')), '')`)
	b.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	b.await(`JSON.stringify(sessionStorage).includes('looked at')`, e2e.Soon)
}

// A user who confirms the log-out is not asked again by the browser, although the typed text is too long to be kept.
func TestPageLogOutTooMuchTyped(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	b.manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.leavesUnasked()
	b.set("set-title", "Mine")
	b.eval(`((setItem) => {
		Storage.prototype.setItem = function (key, value) {
			if (key.includes('draft')) throw new DOMException('full', 'QuotaExceededError');
			setItem.call(this, key, value);
		};
		return '';
	})(Storage.prototype.setItem)`)
	b.set("set-title", "Mine, and more than can be kept")
	b.press("#log-out")
	b.shows("dialog", "What you typed is not saved: verify. If you log out, it is lost.")
	b.press("dialog button[value=yes]")
	b.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	b.leftNothing("Mine")
}
