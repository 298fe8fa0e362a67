package page

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
)

// People log in by a link, come back to where they wanted to go, see who they are and until when, and log out. Then nothing of
// them is left, also in another tab, and the provider has logged them out, too.
func TestPageLogIn(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	leased(at.site, "1h", "a", "b")
	b := newBrowser(t, "")
	b.comesIn(at, "/wall?task=verify", "Oliver")
	if is := b.eval(`location.pathname + location.search`); is != "/wall?task=verify" {
		t.Errorf("it came back to %s", is)
	}
	b.do(chromedp.Navigate(at.url))
	at.Got(at.As("Oliver", 0), "verify", 2)
	b.works(2, e2e.Soon)
	b.typeNote("a secret")
	other := b.window()
	other.do(chromedp.Navigate(at.url))
	other.works(2, e2e.Soon)
	b.use("button", "Oliver")
	for _, text := range []string{"Worker", "In loan-desk", "Logged in until ", "if you do nothing, until "} {
		b.shows("#me-menu", text)
	}
	b.leave("button", "Log out")
	for _, w := range []*browser{b, other} {
		w.shows("#log-in h1", "Log in")
		w.leftNothing("Oliver", "verify", "secret")
	}
	b.follows("Log in")
	b.picks("Tracy") // it asks who they are
	other.await(`document.querySelector('#name').textContent === 'Tracy'`, e2e.Soon)
	b.leftNothing("Oliver", "secret")
}

// When a session ends, the page shows nothing of its user at once. What they typed, and what was not sent, waits for them.
func TestPageSessionEnds(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	leased(at.site, "1h", "first", "second", "third")
	b := newBrowser(t, undoLasts)
	b.leavesUnasked()
	begins := func() {
		t.Helper()
		b.comesIn(at, "/", "Oliver")
		b.works(3, e2e.Soon)
		b.typeNote("my note")
		b.press("#work li:nth-child(2) .complete")
		b.shows("#work .going", "second: completed")
	}
	ends := func() {
		t.Helper()
		at.throwsOut("Oliver")
		b.shows("#log-in h1", "You are logged out")
		b.shows("#log-in p", "waits in this tab for the same person")
		if text := b.eval(`document.documentElement.outerHTML`); strings.Contains(text, "Oliver") || strings.Contains(text, "first") {
			t.Errorf("the page still has: %s", text)
		}
		if keys := b.eval(`Object.keys(sessionStorage).sort().join()`); keys != "getwork.desk.Oliver,getwork.whose" {
			t.Errorf("what is kept: %s", keys)
		}
	}
	at.Got(at.As("Oliver", 0), "verify", 3)
	begins()
	ends()
	b.follows("Log in")
	b.picks("Oliver")
	at.disposes("first held, second completed, third held")
	b.works(2, e2e.Soon)
	b.await(`document.querySelector('textarea')?.value === 'my note'`, e2e.Soon)

	// Somebody else comes, even a manager, who might close others' work.
	b.press("#work li:nth-child(2) .complete")
	b.shows("#work .going", "third: completed")
	ends()
	b.follows("Log in")
	b.picks("Mia")
	b.state("live", e2e.Soon)
	b.leftNothing("Oliver", "my note", "first")
	at.disposes("first held, second completed, third held")
}

// A user logs in in one of two tabs that show another user's page. Nothing of the former user stays in either, and nothing is
// sent in the new one's name.
func TestPageLogInElsewhere(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	leased(at.site, "1h", "first", "second")
	b := newBrowser(t, undoLasts)
	b.leavesUnasked()
	at.Got(at.As("Oliver", 0), "verify", 2)
	b.comesIn(at, "/", "Oliver")
	b.works(2, e2e.Soon)
	b.press("#work li:first-child .complete")
	b.eval(`(localStorage.setItem('getwork.in', 'another'), passes(), '')`) // as for a tab that has not been told yet
	b.shows("#work .going", "first: completed. The server can’t be reached now")
	other := b.window()
	other.do(chromedp.Navigate(at.url + "/auth/login?again=1"))
	other.picks("Mia")
	b.await(`document.querySelector('button#who #name')?.textContent === 'Mia'`, e2e.Soon)
	b.state("live", e2e.Soon)
	b.leftNothing("Oliver", "first")
	at.disposes("first held, second held")
}

// A session that is about to end says so. A key prolongs one that ends for idleness; nothing prolongs one that has lasted long.
func TestPageSessionIdle(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	b := newBrowser(t, "")
	b.comesIn(at, "/wall", "Oliver")
	ends := func(column, in string) {
		t.Helper()
		at.Exec(`update getwork.session set `+column+` = clock_timestamp() + $1::interval`, in)
		inPage[any](b, `await until(async () => { // the node keeps what it has read for a second
			const me = await (await fetch('/api/v1/me')).json();
			return Date.parse(me.`+column+` ?? 0) - Date.now() < 3 * 60_000;
		})`)
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(at.url+"/"))
	}
	ends("idle_at", "2 minutes")
	b.shows(".ending", "You have done nothing here for a while.")
	b.keys(kb.Shift)
	b.await(`document.querySelector('.ending').hidden`, e2e.Soon)
	at.Await("the session goes on", e2e.Soon, `select idle_at > clock_timestamp() + interval '20 minutes' from getwork.session`)
	const told = `performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/me/active')).length`
	for range 3 {
		b.keys(kb.Shift)
	}
	b.settle()
	if n := b.eval(`String(` + told + `)`); n != "1" {
		t.Errorf("the server was told %s times within a minute", n)
	}
	ends("ends_at", "2 minutes")
	b.shows(".ending", "Your session ends at ")
	b.shows(".ending a", "Log in again now")
	ends("ends_at", "2 seconds")
	b.shows("#log-in h1", "You are logged out")
}

// An account that is blocked is told so, also while its page is open, and can be left for another.
func TestPageBlocked(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	b := newBrowser(t, "")
	b.comesIn(at, "/", "Oliver")
	b.state("live", e2e.Soon)
	at.Exec(`update getwork.principal set blocked_at = clock_timestamp(), changed = pg_current_xact_id()`)
	b.shows("#log-in", "Your account is blocked; ask an administrator.")
	b.follows("Log in as somebody else")
	b.picks("Tracy")
}
