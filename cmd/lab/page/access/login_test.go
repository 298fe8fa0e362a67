package access

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// People log in by a link, come back to where they wanted to go, see who they are and until when, and log out. Then nothing of
// them is left, also in another tab, and the provider has logged them out, too.
func TestPageLogIn(t *testing.T) {
	t.Parallel()
	at := page.NewBank(t)
	page.Leased(at.Site, "1h", "a", "b")
	b := page.NewBrowser(t, "")
	comesIn(b, at, "/wall?task=verify", "Oliver")
	if is := b.Eval(`location.pathname + location.search`); is != "/wall?task=verify" {
		t.Errorf("it came back to %s", is)
	}
	b.Do(chromedp.Navigate(at.Address))
	at.Got(at.As("Oliver", 0), "verify", 2)
	b.Works(2, e2e.Soon)
	b.TypeNote("a secret")
	other := b.Window()
	other.Do(chromedp.Navigate(at.Address))
	other.Works(2, e2e.Soon)
	b.Use("button", "Oliver")
	for _, text := range []string{"Worker", "In loan-desk", "Logged in until ", "if you do nothing, until "} {
		b.Shows("#me-menu", text)
	}
	b.Leave("button", "Log out")
	for _, w := range []*page.Browser{b, other} {
		w.Shows("#log-in h1", "Log in")
		w.LeftNothing("Oliver", "verify", "secret")
	}
	follows(b, "Log in")
	b.Picks("Tracy") // it asks who they are
	other.Await(`document.querySelector('#name').textContent === 'Tracy'`, e2e.Soon)
	b.LeftNothing("Oliver", "secret")
}

// When a session ends, the page shows nothing of its user at once. What they typed, and what was not sent, waits for them.
func TestPageSessionEnds(t *testing.T) {
	t.Parallel()
	at := page.NewBank(t)
	page.Leased(at.Site, "1h", "first", "second", "third")
	b := page.NewBrowser(t, page.UndoLasts)
	b.LeavesUnasked()
	begins := func() {
		t.Helper()
		comesIn(b, at, "/", "Oliver")
		b.Works(3, e2e.Soon)
		b.TypeNote("my note")
		b.Press("#work li:nth-child(2) .complete")
		b.Shows("#work .going", "second: completed")
	}
	ends := func() {
		t.Helper()
		at.ThrowsOut("Oliver")
		b.Shows("#log-in h1", "You are logged out")
		b.Shows("#log-in p", "waits in this tab for the same person")
		if text := b.Eval(`document.documentElement.outerHTML`); strings.Contains(text, "Oliver") || strings.Contains(text, "first") {
			t.Errorf("the page still has: %s", text)
		}
		if keys := b.Eval(`Object.keys(sessionStorage).sort().join()`); keys != "getwork.desk.Oliver,getwork.whose" {
			t.Errorf("what is kept: %s", keys)
		}
	}
	at.Got(at.As("Oliver", 0), "verify", 3)
	begins()
	ends()
	follows(b, "Log in")
	b.Picks("Oliver")
	page.Disposes(at.Site, "first held, second completed, third held")
	b.Works(2, e2e.Soon)
	b.Await(`document.querySelector('textarea')?.value === 'my note'`, e2e.Soon)

	// Somebody else comes, even a manager, who might close others' work.
	b.Press("#work li:nth-child(2) .complete")
	b.Shows("#work .going", "third: completed")
	ends()
	follows(b, "Log in")
	b.Picks("Mia")
	b.State("live", e2e.Soon)
	b.LeftNothing("Oliver", "my note", "first")
	page.Disposes(at.Site, "first held, second completed, third held")
}

// A user logs in in one of two tabs that show another user's page. Nothing of the former user stays in either, and nothing is
// sent in the new one's name.
func TestPageLogInElsewhere(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	at := page.NewBank(t)
	page.Leased(at.Site, "1h", "first", "second")
	b := page.NewBrowser(t, page.UndoLasts)
	b.LeavesUnasked()
	at.Got(at.As("Oliver", 0), "verify", 2)
	comesIn(b, at, "/", "Oliver")
	b.Works(2, e2e.Soon)
	b.Press("#work li:first-child .complete")
	b.Eval(`(localStorage.setItem('getwork.in', 'another'), passes(), '')`) // as for a tab that has not heard of it yet
	b.Shows("#work .going", "first: completed. The server can’t be reached now")
	other := b.Window()
	other.Do(chromedp.Navigate(at.Address + "/auth/login?again=1"))
	other.Picks("Mia")
	b.Await(`document.querySelector('button#who #name')?.textContent === 'Mia'`, e2e.Soon)
	b.State("live", e2e.Soon)
	b.LeftNothing("Oliver", "first")
	page.Disposes(at.Site, "first held, second held")
}

// A session that is about to end says so. A key prolongs one that ends for idleness; nothing prolongs one that has lasted long.
func TestPageSessionIdle(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	at := page.NewBank(t)
	b := page.NewBrowser(t, "")
	comesIn(b, at, "/wall", "Oliver")
	ends := func(column, in string) {
		t.Helper()
		at.Exec(`update getwork.session set `+column+` = clock_timestamp() + $1::interval`, in)
		page.InPage[any](b, `await until(async () => { // the node keeps what it has read for a second
			const me = await (await fetch('/api/v1/me')).json();
			return Date.parse(me.`+column+` ?? 0) - Date.now() < 3 * 60_000;
		})`)
		b.Opens(at.Address + "/")
	}
	ends("idle_at", "2 minutes")
	b.Shows(".ending", "You have done nothing here for a while.")
	b.Keys(kb.Shift)
	b.Await(`document.querySelector('.ending').hidden`, e2e.Soon)
	at.Await("the session goes on", e2e.Soon, `select idle_at > clock_timestamp() + interval '20 minutes' from getwork.session`)
	const told = `performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/me/active')).length`
	for range 3 {
		b.Keys(kb.Shift)
	}
	b.Settle()
	if n := b.Eval(`String(` + told + `)`); n != "1" {
		t.Errorf("the server was told %s times within a minute", n)
	}
	ends("ends_at", "2 minutes")
	b.Shows(".ending", "Your session ends at ")
	b.Shows(".ending a", "Log in again now")
	ends("ends_at", "2 seconds")
	b.Shows("#log-in h1", "You are logged out")
}

// An account that is blocked reads that, also while its page is open, and can be left for another.
func TestPageBlocked(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	at := page.NewBank(t)
	b := page.NewBrowser(t, "")
	comesIn(b, at, "/", "Oliver")
	b.State("live", e2e.Soon)
	at.Exec(`update getwork.principal set blocked_at = clock_timestamp(), changed = pg_current_xact_id()`)
	b.Shows("#log-in", "Your account is blocked; ask an administrator.")
	follows(b, "Log in as somebody else")
	b.Picks("Tracy")
}
