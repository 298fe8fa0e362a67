package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
)

// bears returns the status of a call with a token.
func (at *bank) bears(token string) int {
	at.T.Helper()
	r, err := http.NewRequestWithContext(at.T.Context(), http.MethodGet, at.url+"/api/v1/me", nil)
	if err != nil {
		at.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		at.T.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// A manager makes a token by keyboard. It needs a newer log-in, after which the form is as it was. The token is shown once, works,
// and works no more once it has ended.
func TestPageTokens(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	at.Create(map[string]any{"name": "documents", "title": "Sort documents"})
	b := newBrowser(t, noMouse)
	b.comesIn(at, "/account", "Mia")
	at.provedLongAgo(b)
	b.enter("button", "New token")
	b.await(`document.activeElement.id === 'token-label'`, e2e.Soon)
	b.keys("release robot")
	b.tabTo("checkbox", "manage")
	b.keys(" ")
	b.tabTo("combobox", "Expires after")
	b.keys(kb.ArrowUp) // 30 days
	b.eval(`(document.querySelector('.token-form details').open = true, '')`)
	b.tabTo("checkbox", "Sort documents")
	b.keys(" ")
	b.enter("button", "Make the token")
	b.shows(".token-form [role=alert]", "For this token you must have logged in within the last 15 minutes")
	b.await(`document.activeElement.id === 'token-again'`, e2e.Soon)
	b.keys(kb.Enter)
	b.picks("Mia")
	const filled = `((f) => f.querySelector('#token-label').value + f.querySelector('select').value + [...f.querySelectorAll('input:checked')].map((e) => e.parentElement.innerText.trim().split(' ')[0]))(document.querySelector('.token-form'))`
	b.await(`document.querySelector('.token-form .tasks-of')`, e2e.Soon)
	if is := b.eval(filled); is != "release robot30read,manage,Sort" {
		t.Errorf("after the log-in the form has %q", is)
	}
	b.enter("button", "Make the token")
	b.await(`document.activeElement.id === 'the-token'`, e2e.Soon)
	token := b.eval(`document.querySelector('#the-token').value`)
	if status := at.bears(token); status != http.StatusOK {
		t.Errorf("the token is answered %d", status)
	}
	b.shows("tbody td", "manage, read")
	b.shows("tbody td", "in documents")
	b.enter("button", "Done")
	if kept := b.eval(`document.documentElement.outerHTML + JSON.stringify([sessionStorage, localStorage])`); len(token) < 60 || strings.Contains(kept, token) || strings.Contains(kept, "release robot\\") {
		t.Errorf("of the token %q there is still: %s", token, kept)
	}
	b.enter("button", "End the token release robot")
	b.enter("button", "End it")
	b.shows("#tokens-title ~ p, .card p", "You have none.")
	e2e.Await(t, "the token is refused", e2e.Soon, func() bool { return at.bears(token) == http.StatusUnauthorized })

	// A form that waits is not somebody else's.
	at.provedLongAgo(b)
	b.enter("button", "New token")
	b.await(`document.activeElement.id === 'token-label'`, e2e.Soon)
	b.keys("half a token")
	b.tabTo("checkbox", "manage")
	b.keys(" ")
	b.enter("button", "Make the token")
	b.await(`document.activeElement.id === 'token-again'`, e2e.Soon)
	b.keys(kb.Enter)
	b.picks("Boris")
	b.await(`document.querySelector('#new-token')`, e2e.Soon)
	b.leftNothing("half a token", "Mia")
}

// A user ends one of their sessions, and then all.
func TestPageSignsOutEverywhere(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	one, two, three := newBrowser(t, ""), newBrowser(t, ""), newBrowser(t, "")
	one.comesIn(at, "/account", "Oliver")
	one.choose("Language", "Deutsch")
	one.sees("Ihr Konto")
	one.do(chromedp.Reload())
	one.sees("Ihr Konto")
	one.choose("Sprache", "Wie im Browser")
	one.sees("Your account")
	two.comesIn(at, "/", "Oliver")
	one.do(chromedp.Reload())
	one.shows("tbody .badge", "this browser")
	one.press(".account tbody button")
	two.shows("#log-in h1", "You are logged out")
	one.await(`document.querySelectorAll('[aria-labelledby=sessions-title] tbody tr').length === 1`, e2e.Soon)
	three.comesIn(at, "/wall", "Oliver")
	one.use("button", "Sign out everywhere")
	one.press("dialog button[value=yes]")
	one.shows("#log-in h1", "You are logged out")
	three.shows("#log-in h1", "You are logged out")
}

// An administrator without a role sees users, the audit and web hooks alone, and nothing that they may not use. They end sessions,
// block people, and make tokens for services and web hooks of all tasks; the people's pages follow at once.
func TestPageAdministrator(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	leased(at.site, "1h", "a", "b")
	oliver, tracy, ada := newBrowser(t, ""), newBrowser(t, ""), newBrowser(t, denials)
	oliver.comesIn(at, "/", "Oliver")
	tracy.comesIn(at, "/", "Tracy")
	at.Got(at.As("Oliver", 0), "verify", 1)
	oliver.works(1, e2e.Soon)
	ada.comesIn(at, "/", "Ada")
	ada.await(`location.pathname === '/users'`, e2e.Soon)
	if links := ada.eval(`[...document.querySelectorAll('#views a')].map((e) => e.textContent).join(' ')`); links != "Users Audit Web hooks" {
		t.Errorf("the views are %s", links)
	}
	ada.fill("searchbox", "Name", "TRA")
	ada.await(`[...document.querySelectorAll('tbody th a')].map((a) => a.textContent).join() === 'Tracy'`, e2e.Soon)
	ada.use("link", "Tracy")
	ada.sees("Chrome on Linux")
	ada.use("button", "End the session of Chrome")
	tracy.shows("#log-in h1", "You are logged out")
	ada.sees("They are not logged in now.")

	ada.do(chromedp.Navigate(at.url + "/users?user=Oliver"))
	ada.sees("1 item")
	ada.sees("which a manager can release")
	ada.use("button", "Block")
	ada.press("dialog button[value=yes]")
	oliver.shows("#log-in", "Your account is blocked; ask an administrator.")
	if text := oliver.eval(`document.documentElement.outerHTML`); strings.Contains(text, "Oliver") || strings.Contains(text, "verify") {
		t.Errorf("a blocked user's page has: %s", text)
	}
	ada.use("button", "Let in again")
	ada.sees("Block …")

	ada.use("link", "Users")
	ada.use("button", "New service token")
	ada.fill("textbox", "Name of the service", "resizer")
	ada.fill("textbox", "What it is for", "photos")
	ada.fill("textbox", "Only for the tasks", "verify")
	ada.use("button", "Make the token")
	ada.await(`document.querySelector('#the-token')`, e2e.Soon)
	if status := at.bears(ada.eval(`document.querySelector('#the-token').value`)); status != http.StatusOK {
		t.Errorf("the service's token is answered %d", status)
	}
	ada.use("link", "Audit")
	for _, act := range []string{"token.create", "user.unblock", "user.block", "session.end"} {
		ada.shows("tbody th", act)
	}
	ada.choose("Act", "user.block")
	ada.await(`[...document.querySelectorAll('tbody th')].map((e) => e.innerText.trim()).join() === 'user.block'`, e2e.Soon)
	ada.use("link", "Web hooks")
	ada.use("button", "New web hook")
	ada.shows(".token-form .field", "All tasks")
	ada.fill("textbox", "URL", "https://receiver.example/getwork")
	ada.use("button", "Make the web hook")
	ada.sees("Copy the secret now")
	ada.use("button", "Done")
	ada.sees("Nothing has been sent yet.")
	if denied := ada.eval(`sessionStorage.denied ?? ''`); denied != "" {
		t.Errorf("denied: %s", denied)
	}
	at.throwsOut("Ada") // without a live channel: the page asks every ten seconds
	ada.shows("#log-in h1", "You are logged out")
}

// The audit is read page by page.
func TestPageAuditPages(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	for i := range 60 {
		at.Create(map[string]any{"name": fmt.Sprint("task-", i)})
	}
	b := newBrowser(t, "")
	b.comesIn(at, "/audit?act=task.create", "Ada")
	const rows = `document.querySelectorAll('.audit tbody tr').length`
	b.await(rows+` > 0`, e2e.Soon)
	first := b.eval(`String(` + rows + `)`)
	b.use("button", "Older")
	b.await(rows+` === 60`, e2e.Soon)
	if first == "60" {
		t.Error("there is one page only")
	}
	if names := b.eval(`String(new Set([...document.querySelectorAll('.audit tbody td:nth-child(2)')].map((e) => e.textContent)).size)`); names != "60" {
		t.Errorf("%s different tasks", names)
	}
}
