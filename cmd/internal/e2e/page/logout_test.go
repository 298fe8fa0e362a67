package page

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

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
	other.await(`document.querySelectorAll('#work .key').length === 2`, e2e.Soon)
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

// A page that got no answer asks who is logged in as soon as the server answers, and then no longer reports that it
// got none.
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
