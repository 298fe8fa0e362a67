package desk

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// leavesAllTheSame answers the browser's question before leaving while something is not sent. The browser asks only
// users who have used the page.
func leavesAllTheSame(b *page.Browser) { b.AnswersYes(func() {}) }

// A busy server is asked again when it said, and no sooner, whatever happens to the page meanwhile. The page says that
// the outcome is kept, and it counts once.
func TestPageOutboxHeedsRetryAfter(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			b, s, g := page.Behind(t, 2)
			b.TypeNote("looked at")
			g.Refuses(status, 1, "10") // the page says so for that long
			b.Press("#work li:first-child .complete")
			b.Eval(`(passes(), '')`)
			b.Shows("#work .going", "a: completed. The server can’t take it now; it is sent as soon as it can be.")
			b.Shows("#heard", "a: The server can’t take it now; it is sent as soon as it can be.")
			cutOff(b) // the connection is back before that
			b.Eval(`(Object.defineProperty(document, 'hidden', { value: true, configurable: true }), document.dispatchEvent(new Event('visibilitychange')), '')`)
			b.Eval(`(delete document.hidden, document.dispatchEvent(new Event('visibilitychange')), '')`)
			page.Disposes(s, "a completed looked at, b held")
			b.Works(1, e2e.Soon)
			sent := g.Dispositions()
			if len(sent) != 2 {
				t.Fatalf("the outcome was sent %d times, want once more than it was refused", len(sent))
			}
			if waited := sent[1].Sub(sent[0]); waited < 9990*time.Millisecond { // the browser's clock and ours may differ a little
				t.Errorf("the outcome was sent again after %v, though the server had said 10 s", waited)
			}
			cutOff(b)
			b.Press("#work .complete")
			b.Eval(`(passes(), '')`)
			page.Disposes(s, "a completed looked at, b completed")
			if n := len(g.Dispositions()); n != 3 {
				t.Errorf("%d dispositions were sent; that of a counts once, and is not sent again", n)
			}
		})
	}
}

// An outcome that the server refuses for good comes back with the typed text and the reason, and can be sent again;
// nothing else is lost.
func TestPageRefusedComesBack(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s, g := page.Behind(t, 2)
	b.TypeNote("looked at")
	for _, status := range []int{400, 403, 404, 409, 413, 422, 500} {
		g.Refuses(status, 1, "")
		b.Press("#work li:first-child .complete")
		b.Eval(`(passes(), '')`)
		b.Shows("#work .summary", fmt.Sprintf("refused with %d", status))
		b.Shows("#told", fmt.Sprintf("a was not let go of: refused with %d", status))
		b.Press("#work li:first-child .key") // the user has gone on to b
		b.Shows(".sheet .error", fmt.Sprintf("refused with %d", status))
		b.Await(`document.querySelector('.sheet textarea')`, e2e.Soon)
		if note := b.Eval(`document.querySelector('#work textarea').value`); note != "looked at" {
			t.Fatalf("%d: the note is %q", status, note)
		}
		if got := page.Dispositions(s); got != "a held, b held" {
			t.Fatalf("%d: %s", status, got)
		}
		b.Eval(`(passes(), '')`)
		if n := len(g.Dispositions()); n != 1 {
			t.Errorf("%d: the outcome was sent %d times", status, n)
		}
	}
	b.Press("#work li:first-child .complete")
	b.Eval(`(passes(), '')`)
	page.Disposes(s, "a completed looked at, b held")
	b.Works(1, e2e.Soon)
}

// After the session has ended the user must log in again; then the outcomes are sent, with their notes.
func TestPageOutboxSessionEnds(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s, g := page.Behind(t, 2)
	b.TypeNote("looked at")
	b.Press("#work li:first-child .complete")
	page.InPage[any](b, `await fetch('/logout', { method: 'POST' })`) // as if the session had ended
	b.Eval(`(passes(), '')`)
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	if got := page.Dispositions(s); got != "a held, b held" {
		t.Error(got)
	}
	b.LogIn(g.URL, "Oliver")
	page.Disposes(s, "a completed looked at, b held")
	b.Works(1, e2e.Soon)
}

// Another user who logs in then finds nothing of it, and nothing is sent in their name.
func TestPageOutboxSessionTakenOver(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s, g := page.Behind(t, 2)
	b.TypeNote("looked at")
	b.Press("#work li:first-child .complete")
	page.InPage[any](b, `await fetch('/logout', { method: 'POST' })`) // as if the session had ended
	b.Eval(`(passes(), '')`)
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	b.Await(`JSON.stringify(sessionStorage).includes('looked at')`, e2e.Soon)
	g.Refuses(0, 0, "")
	b.LogIn(g.URL, "Tracy")
	b.State("live", e2e.Soon)
	b.LeftNothing("looked at", "Oliver")
	s.Takes("Tracy", 1)
	b.Works(1, e2e.Soon)
	b.Press("#work .complete")
	b.Eval(`(passes(), '')`)
	page.Disposes(s, "a held, b held, c completed")
	if n := len(g.Dispositions()); n != 1 {
		t.Errorf("%d dispositions were sent, want hers", n)
	}
}

// Outcomes that can't be sent are sent after a reload, even if the server was away for that, too.
func TestPageOutboxOutlastsReload(t *testing.T) {
	t.Parallel()
	b, s := desk(t, page.UndoLasts, "1h", 2)
	leavesAllTheSame(b)
	b.TypeNote("no line")
	b.Press("#work li:first-child .complete")
	s.Nodes[0].Kill()
	b.Eval(`(passes(), '')`)
	b.Shows("#work .going", "The server can’t be reached now; it is sent as soon as it can be.")
	dead, cancel := context.WithTimeout(b.Context(), timeout.Scale(e2e.Soon))
	defer cancel()
	if err := chromedp.Do(dead, chromedp.Navigate(s.Nodes[0].URL)); err == nil {
		t.Error("a dead node served the page")
	}
	s.Nodes[0].Restart()
	if err := chromedp.Do(dead, chromedp.Navigate(s.Nodes[0].URL)); err != nil {
		b.Do(chromedp.Navigate(s.Nodes[0].URL)) // Chromium's error page loads itself again, which has ended this navigation
	}
	page.Disposes(s, "a completed no line, b held")
	b.Works(1, e2e.Soon)
	b.Shows("#recent", "a")
	b.Await(`!JSON.stringify(sessionStorage).includes('no line')`, e2e.Soon)
}

// The same holds in another view; and a page that can't ask who is logged in tries again by itself.
func TestPageOutboxOutlastsReloadElsewhere(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s, g := page.Behind(t, 2)
	leavesAllTheSame(b)
	b.TypeNote("no line")
	g.Refuses(http.StatusBadGateway, -1, "")
	b.Press("#work li:first-child .complete")
	b.Eval(`(passes(), '')`)
	b.Shows("#work .going", "The server can’t be reached now")
	b.Press(`#views a[href="/wall"]`)
	b.Await(`document.querySelector('[data-view=wall]')`, e2e.Soon)
	g.Refusing(func(w http.ResponseWriter, r *http.Request) bool {
		api := strings.HasPrefix(r.URL.Path, "/api/")
		if api {
			http.Error(w, "bad gateway", http.StatusBadGateway)
		}
		return api
	})
	b.Do(chromedp.Reload())
	b.Banner("No answer: the server answered with status 502. Trying again every 5 s.", e2e.Soon)
	if shown := b.Eval(`String(document.querySelector('#log-in').checkVisibility())`); shown != "false" {
		t.Error("the page asks who is logged in, though it does not know of the log-out")
	}
	b.Cached(false)
	live := make(chan struct{})
	g.Refusing(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/views/desk.js") {
			select { // the pipeline is known before the sender is loaded
			case <-live:
			case <-r.Context().Done():
			}
		}
		return false
	})
	b.Await(`document.querySelector('[data-view=wall]')`, e2e.Soon)
	b.Shows(".wall-state", "Live")
	close(live)
	page.Disposes(s, "a completed no line, b held")
	b.Await(`document.querySelector('#banner').hidden`, e2e.Soon)
	b.Press(".wall-controls .back")
	b.Works(1, e2e.Soon)
}

// If another user logs in in another tab, nothing is sent in their name of what was let go of before, neither waiting
// nor kept outcomes. The page is theirs then, and does not ask before it is left.
func TestPageOutboxAnotherLogsIn(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept %t", kept), func(t *testing.T) {
			b, s, g := page.Behind(t, 2)
			b.LeavesUnasked()
			b.TypeNote("looked at")
			g.Refuses(http.StatusServiceUnavailable, -1, "60")
			b.Press("#work li:first-child .complete")
			if kept {
				b.Eval(`(passes(), '')`)
				b.Shows("#work .going", "The server can’t take it now")
			}
			g.Refuses(0, 0, "")
			b.Window().Visit(g.URL, "/", "Mia,manager") // a manager may let go of what others hold
			b.Await(`document.querySelector('#name').textContent === 'Mia' && document.querySelector('#empty')`, e2e.Soon)
			b.LeftNothing("looked at", "Oliver")
			if got := page.Dispositions(s); got != "a held, b held" {
				t.Error(got)
			}
			if n := len(g.Dispositions()); n > 0 {
				t.Errorf("%d dispositions were sent in her name", n)
			}
		})
	}
}

// A duplicated tab has everything that is kept. Both tabs send it, and it counts once.
func TestPageOutboxOfADuplicatedTab(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s, g := page.Behind(t, 2)
	b.TypeNote("looked at")
	g.Refuses(http.StatusBadGateway, -1, "")
	b.Press("#work li:first-child .complete")
	b.Eval(`(passes(), '')`)
	b.Shows("#work .going", "The server can’t be reached now")
	stored := b.Eval(`JSON.stringify(sessionStorage)`)
	other := b.Window()
	other.Do(chromedp.Navigate(g.URL))
	other.Await(`document.querySelector('#work .complete')`, e2e.Soon)
	other.Eval(fmt.Sprintf(`(Object.assign(sessionStorage, JSON.parse(%q)), '')`, stored))
	other.Do(chromedp.Reload())
	other.Shows("#work .going", "The server can’t be reached now")
	other.Press("#log-out")
	other.Shows("dialog", "The server can’t be told now what you did with: a. If you stay") // it is named once
	other.Press("dialog button[value=no]")
	g.Refuses(0, 0, "")
	for _, w := range []*page.Browser{b, other} {
		w.Eval(`(Object.defineProperty(document, 'hidden', { value: true, configurable: true }), document.dispatchEvent(new Event('visibilitychange')), delete document.hidden, '')`) // sooner than by itself
	}
	for _, w := range []*page.Browser{b, other} {
		w.Works(1, e2e.Soon)
		w.Shows("#recent", "a")
		w.Await(`!JSON.stringify(sessionStorage).includes('looked at')`, e2e.Soon)
		if told := w.Eval(`document.querySelector('#told').textContent`); strings.Contains(told, "not let go of") {
			t.Errorf("it tells %q", told)
		}
	}
	page.Disposes(s, "a completed looked at, b held")
}
