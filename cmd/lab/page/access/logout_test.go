package access

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// After a log-out nothing of the user stays: not in this tab, nor in another, nor in one that was asleep, nor in the
// browser's Back.
func TestPageLogOutLeavesNothing(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, page.UndoLasts)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "1h", "a", "b", "c")
	b.Visit(s.Nodes[0].URL, "/", "Mia,manager")
	b.State("live", e2e.Soon)
	s.Takes("Mia", 3)
	b.Works(3, e2e.Soon)
	b.Press("#work li:nth-child(2) .complete")
	b.Eval(`(passes(), '')`)
	b.Shows("#recent", "b") // a key is a bank's data, too
	b.TypeNote("secret of one")
	other, asleep := b.Window(), b.Window()
	for note, w := range map[string]*page.Browser{"secret of two": other, "secret of three": asleep} {
		w.Do(chromedp.Navigate(s.Nodes[0].URL))
		w.Works(2, e2e.Soon)
		w.TypeNote(note)
		w.Await(fmt.Sprintf(`JSON.stringify(sessionStorage).includes(%q)`, note), e2e.Soon)
	}
	asleep.Do(chromedp.Navigate("about:blank"))
	b.Press(`#views a[href="/floor"]`)
	b.Await(`document.querySelector('[data-view=floor]')`, e2e.Soon)
	b.Press("#log-out")
	gone := func(w *page.Browser) {
		t.Helper()
		w.Await(`document.querySelector('#log-in')?.checkVisibility()`, e2e.Soon)
		w.LeftNothing("secret", "Mia", "verify")
	}
	gone(b)
	gone(other)
	asleep.Do(chromedp.Navigate(s.Nodes[0].URL))
	gone(asleep)
	b.Do(chromedp.NavigateBack())
	gone(b)
	b.Eval(`(window.before = true, dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })), '')`) // as a browser does that has kept the page
	b.Await(`!window.before`, e2e.Soon)
	gone(b)
	page.Disposes(s, "a held, b completed, c held")
}

// A user who logs out while something can't be sent is asked to confirm; and if the log-out fails, the page says so.
func TestPageLogOutUnsent(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s, g := page.Behind(t, 3)
	b.TypeNote("no line")
	g.Refuses(http.StatusServiceUnavailable, -1, "60")
	b.Press("#work li:first-child .complete")
	b.Eval(`(passes(), '')`)
	b.Shows("#work .going", "The server can’t take it now")
	other := b.Window() // where something is kept, too
	other.Do(chromedp.Navigate(g.URL))
	other.Await(`document.querySelectorAll('#work .key').length === 2`, e2e.Soon)
	other.Click("#work .complete")
	other.Shows("#work .going", "b: completed. The server can’t take it now")
	b.Shows("#work .going", "b: completed. The server can’t take it now") // the other window knows
	b.Press("#log-out")
	b.Shows("dialog", "The server can’t be told now what you did with: a, b.")
	b.Press("dialog button[value=no]")
	b.Await(`!document.querySelector('dialog')`, e2e.Soon) // until then another log-out is the same one
	b.Shows("#work .going", "The server can’t take it now")
	g.Refusing(func(w http.ResponseWriter, r *http.Request) bool {
		refused := page.IsDisposition(r) || r.URL.Path == "/logout"
		if refused {
			http.Error(w, "bad gateway", http.StatusBadGateway)
		}
		return refused
	})
	b.Press("#log-out")
	b.Press("dialog button[value=yes]")
	b.Shows("#said", "You are still logged in: the server answered with status 502.")
	b.Shows("#work .going", "The server can’t be reached now")
	b.Await(`!document.querySelector('dialog')`, e2e.Soon)
	g.Refuses(http.StatusServiceUnavailable, -1, "60")
	b.Press("#log-out")
	b.Press("dialog button[value=yes]")
	for _, w := range []*page.Browser{b, other} { // neither asks anything more
		w.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
		w.LeftNothing("no line", "Oliver")
	}
	if got := page.Dispositions(s); got != "a held, b held, c held" {
		t.Error(got)
	}

	// If the session ends before the question is answered, or even asked, the page does not wait for an answer.
	for _, asked := range []bool{true, false} {
		b.LogIn(g.URL, "Oliver")
		b.State("live", e2e.Soon)
		b.Works(3, e2e.Soon)
		b.Press("#work .complete")
		b.Eval(`(passes(), '')`)
		b.Shows("#work .going", "The server can’t take it now")
		if asked {
			b.Press("#log-out")
			b.Shows("dialog", "The server can’t be told now what you did with: a.")
		}
		page.InPage[any](b, `await fetch('/logout', { method: 'POST' })`)
		b.Eval(fmt.Sprintf(`(%v || document.querySelector('#log-out').click(), dispatchEvent(new Event('focus')), '')`, asked))
		b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	}
}

// A page that got no answer asks who is logged in as soon as the server answers, and then no longer reports that it
// got none.
func TestPageLogInAfterNoAnswer(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	g := page.BehindGateway(e2e.NewSite(t, 1, ""))
	g.Refusing(func(w http.ResponseWriter, r *http.Request) bool {
		api := strings.HasPrefix(r.URL.Path, "/api/")
		if api {
			http.Error(w, "a mistake", http.StatusInternalServerError)
		}
		return api
	})
	b.Do(chromedp.Navigate(g.URL))
	b.Banner("No answer: the server answered with status 500. Trying again every 5 s.", e2e.Soon)
	g.Refusing(nil)
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	if text := b.Eval(`document.querySelector('#banner').checkVisibility() ? document.querySelector('#banner').innerText : ''`); text != "" {
		t.Errorf("it still says %q", text)
	}
}

// Pressing Log out again while the server takes its time asks once, and a later log-out still works.
func TestPageLogOutPressedTwice(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s, g := page.Behind(t, 2)
	answer := make(chan struct{})
	answered := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(answered)
	g.Refusing(func(_ http.ResponseWriter, r *http.Request) bool {
		if page.IsDisposition(r) {
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
		return false
	})
	b.Press("#work li:first-child .complete")
	b.Eval(`(document.querySelector('#log-out').click(), document.querySelector('#log-out').click(), '')`)
	b.Shows("dialog", "The server can’t be told now what you did with: a.")
	b.Press("dialog button[value=no]")
	b.Await(`!document.querySelector('dialog')`, e2e.Soon)
	answered()
	page.Disposes(s, "a completed, b held")
	b.Works(1, e2e.Soon) // it has its answer, so nothing is sent any more
	b.Press("#log-out")
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
}

// A user with unsaved changes of a task is asked before the log-out, which loses them; also in another view.
func TestPageLogOutUnsaved(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.Set("set-title", "New one")
	b.Eval(`(document.querySelector('#views a[href="/tasks"]').click(), '')`)
	b.Await(`document.querySelector('[data-task=verify] a')`, e2e.Soon)
	b.Eval(`(document.querySelector('[data-task=verify] a').click(), '')`)
	b.Set("set-title", "Mine")
	b.Press(`#views a[href="/people"]`)
	b.Await(`document.querySelector('[data-view=people]')`, e2e.Soon)
	b.Press("#log-out")
	b.Shows("dialog", "What you typed is not saved: a new task, verify. If you log out, it is lost.")
	b.Press("dialog button[value=no]")
	b.Await(`!document.querySelector('dialog')`, e2e.Soon)
	b.Press(`#views a[href="/tasks"]`)
	b.Shows("[data-task=verify] .tag", "not saved")
	b.Press("#log-out")
	b.Press("dialog button[value=yes]")
	b.Await(`document.querySelector('#log-in')?.checkVisibility()`, e2e.Soon)
	b.LeftNothing("Mine", "New one")
}

// A page that leaves by itself does not ask, and does not leave if the same user logs in again in another tab. Kept
// outcomes stay kept.
func TestPageGoesUnasked(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, _, g := page.Behind(t, 2)
	b.LeavesUnasked()
	b.TypeNote("looked at")
	g.Refuses(http.StatusServiceUnavailable, -1, "60")
	b.Press("#work li:first-child .complete")
	b.Eval(`(passes(), '')`)
	b.Shows("#work .going", "The server can’t take it now")
	const asked = `performance.getEntriesByType('resource').filter((e) => new URL(e.name).pathname === '/api/v1/me').length`
	b.Eval(`(window.asked = ` + asked + `, '')`)
	other := b.Window()
	other.Do(chromedp.Navigate(g.URL))
	other.Await(`document.querySelector('#work .going')`, e2e.Soon)
	other.Eval(`(new BroadcastChannel('getwork').postMessage('log-in'), '')`) // as after a log-in
	b.Await(`!window.asked || `+asked+` > window.asked`, e2e.Soon)
	b.Settle()
	if stays := b.Eval(`String(window.asked > 0)`); stays != "true" {
		t.Error("it was loaded again")
	}
	page.InPage[any](b, `await fetch('/logout', { method: 'POST' })`) // as if the session had ended
	b.Eval(`(dispatchEvent(new Event('focus')), '')`)
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	b.Await(`JSON.stringify(sessionStorage).includes('looked at')`, e2e.Soon)
}

// A user who confirms the log-out is not asked again by the browser, although the typed text is too long to be kept.
func TestPageLogOutTooMuchTyped(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.LeavesUnasked()
	b.Set("set-title", "Mine")
	b.Eval(`((setItem) => {
		Storage.prototype.setItem = function (key, value) {
			if (key.includes('draft')) throw new DOMException('full', 'QuotaExceededError');
			setItem.call(this, key, value);
		};
		return '';
	})(Storage.prototype.setItem)`)
	b.Set("set-title", "Mine, and more than can be kept")
	b.Press("#log-out")
	b.Shows("dialog", "What you typed is not saved: verify. If you log out, it is lost.")
	b.Press("dialog button[value=yes]")
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	b.LeftNothing("Mine")
}
