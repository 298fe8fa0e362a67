package access

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// bears returns the status of a call with a token.
func bears(at *page.Bank, token string) int {
	at.T.Helper()
	r, err := http.NewRequestWithContext(at.T.Context(), http.MethodGet, at.Address+"/api/v1/me", nil)
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
	at := page.NewBank(t)
	at.Create(map[string]any{"name": "documents", "title": "Sort documents"})
	b := page.NewBrowser(t, page.NoMouse)
	comesIn(b, at, "/account", "Mia")
	at.ProvedLongAgo(b)
	b.Enter("button", "New token")
	b.Await(`document.activeElement.id === 'token-label'`, e2e.Soon)
	b.Keys("release robot")
	b.TabTo("checkbox", "manage")
	b.Keys(" ")
	b.TabTo("combobox", "Expires after")
	b.Keys(kb.ArrowUp) // 30 days
	b.Eval(`(document.querySelector('.token-form details').open = true, '')`)
	b.TabTo("checkbox", "Sort documents")
	b.Keys(" ")
	b.Enter("button", "Make the token")
	b.Shows(".token-form [role=alert]", "For this token you must have logged in within the last 15 minutes")
	b.Await(`document.activeElement.id === 'token-again'`, e2e.Soon)
	b.Keys(kb.Enter)
	b.Picks("Mia")
	const filled = `((f) => f.querySelector('#token-label').value + f.querySelector('select').value + [...f.querySelectorAll('input:checked')].map((e) => e.parentElement.innerText.trim().split(' ')[0]))(document.querySelector('.token-form'))`
	b.Await(`document.querySelector('.token-form .tasks-of')`, e2e.Soon)
	if is := b.Eval(filled); is != "release robot30read,manage,Sort" {
		t.Errorf("after the log-in the form has %q", is)
	}
	b.Enter("button", "Make the token")
	b.Await(`document.activeElement.id === 'the-token'`, e2e.Soon)
	token := b.Eval(`document.querySelector('#the-token').value`)
	if status := bears(at, token); status != http.StatusOK {
		t.Errorf("the token is answered %d", status)
	}
	b.Shows("tbody td", "manage, read")
	b.Shows("tbody td", "in documents")
	b.Enter("button", "Done")
	if kept := b.Eval(`document.documentElement.outerHTML + JSON.stringify([sessionStorage, localStorage])`); len(token) < 60 || strings.Contains(kept, token) || strings.Contains(kept, "release robot\\") {
		t.Errorf("of the token %q there is still: %s", token, kept)
	}
	b.Enter("button", "End the token release robot")
	b.Enter("button", "End it")
	b.Shows("#tokens-title ~ p, .paper p", "You have none.")
	e2e.Await(t, "the token is refused", e2e.Soon, func() bool { return bears(at, token) == http.StatusUnauthorized })

	// A form that waits is not somebody else's.
	at.ProvedLongAgo(b)
	b.Enter("button", "New token")
	b.Await(`document.activeElement.id === 'token-label'`, e2e.Soon)
	b.Keys("half a token")
	b.TabTo("checkbox", "manage")
	b.Keys(" ")
	b.Enter("button", "Make the token")
	b.Await(`document.activeElement.id === 'token-again'`, e2e.Soon)
	b.Keys(kb.Enter)
	b.Picks("Boris")
	b.Await(`document.querySelector('#new-token')`, e2e.Soon)
	b.LeftNothing("half a token", "Mia")
}

// A user ends one of their sessions, and then all.
func TestPageSignsOutEverywhere(t *testing.T) {
	t.Parallel()
	at := page.NewBank(t)
	one, two, three := page.NewBrowser(t, ""), page.NewBrowser(t, ""), page.NewBrowser(t, "")
	comesIn(one, at, "/account", "Oliver")
	one.Use("button", "Oliver , worker")
	one.Choose("Language", "Deutsch")
	one.Sees("Ihr Konto")
	one.Do(chromedp.Reload())
	one.Sees("Ihr Konto")
	one.Press("#who")
	one.Choose("Sprache", "Wie im Browser")
	one.Sees("Your account")
	comesIn(two, at, "/", "Oliver")
	one.Do(chromedp.Reload())
	one.Shows("tbody .tag", "this browser")
	one.Press(".account tbody button")
	two.Shows("#log-in h1", "You are logged out")
	one.Await(`document.querySelectorAll('[aria-labelledby=sessions-title] tbody tr').length === 1`, e2e.Soon)
	comesIn(three, at, "/wall", "Oliver")
	one.Use("button", "Sign out everywhere")
	one.Press("dialog button[value=yes]")
	one.Shows("#log-in h1", "You are logged out")
	three.Shows("#log-in h1", "You are logged out")
}

// An administrator without a role sees users, the audit and web hooks alone, and nothing that they may not use. They end sessions,
// block people, and make tokens for services and web hooks of all tasks; the people's pages follow at once.
func TestPageAdministrator(t *testing.T) {
	t.Parallel()
	at := page.NewBank(t)
	page.Leased(at.Site, "1h", "a", "b")
	oliver, tracy, ada := page.NewBrowser(t, ""), page.NewBrowser(t, ""), page.NewBrowser(t, denials)
	comesIn(oliver, at, "/", "Oliver")
	comesIn(tracy, at, "/", "Tracy")
	at.Got(at.As("Oliver", 0), "verify", 1)
	oliver.Works(1, e2e.Soon)
	comesIn(ada, at, "/", "Ada")
	ada.Await(`location.pathname === '/users'`, e2e.Soon)
	if links := ada.Eval(`[...document.querySelectorAll('#views a')].map((e) => e.textContent).join(' ')`); links != "Users Audit Web hooks" {
		t.Errorf("the views are %s", links)
	}
	ada.Fill("searchbox", "Name", "TRA")
	ada.Await(`[...document.querySelectorAll('tbody th a')].map((a) => a.textContent).join() === 'Tracy'`, e2e.Soon)
	ada.Use("link", "Tracy")
	ada.Sees("Chrome on Linux")
	ada.Use("button", "End the session of Chrome")
	tracy.Shows("#log-in h1", "You are logged out")
	ada.Sees("They are not logged in now.")

	ada.Do(chromedp.Navigate(at.Address + "/users?user=Oliver"))
	ada.Sees("1 item")
	ada.Sees("which a manager can release")
	ada.Use("button", "Block")
	ada.Press("dialog button[type=submit]")
	oliver.Shows("#log-in", "Your account is blocked; ask an administrator.")
	if text := oliver.Eval(`document.documentElement.outerHTML`); strings.Contains(text, "Oliver") || strings.Contains(text, "verify") {
		t.Errorf("a blocked user's page has: %s", text)
	}
	ada.Use("button", "Let in again")
	ada.Sees("Block …")

	ada.Use("link", "Users")
	ada.Use("button", "New service token")
	ada.Fill("textbox", "Name of the service", "resizer")
	if roles := ada.Eval(`[...document.querySelectorAll('#token-role option')].map((e) => e.value).join()`); strings.Contains(roles, "manager") {
		t.Errorf("an administrator who is no manager is offered the roles %s", roles)
	}
	ada.Fill("textbox", "What it is for", "photos")
	ada.Fill("textbox", "Only for the tasks", "verify")
	ada.Use("button", "Make the token")
	ada.Await(`document.querySelector('#the-token')`, e2e.Soon)
	token := ada.Eval(`document.querySelector('#the-token').value`)
	if status := bears(at, token); status != http.StatusOK {
		t.Errorf("the service's token is answered %d", status)
	}
	at.Exec(`update getwork.token set made_by = (select id from getwork.principal where name = 'Oliver') where kind = 'service'`)
	ada.Do(chromedp.Navigate(at.Address + "/users?user=Oliver"))
	ada.Use("button", "Block")
	ada.Use("checkbox", "End the tokens that they made for resizer, too.")
	ada.Press("dialog button[type=submit]")
	ada.Sees("Let in again")
	e2e.Await(t, "the service's token is refused", e2e.Soon, func() bool { return bears(at, token) == http.StatusUnauthorized })
	ada.Use("link", "Audit")
	for _, act := range []string{"token.create", "token.end", "user.unblock", "user.block", "session.end"} {
		ada.Shows("tbody th", act)
	}
	ada.Choose("Act", "user.block")
	ada.Await(`[...document.querySelectorAll('tbody th')].map((e) => e.innerText.trim()).join() === 'user.block,user.block'`, e2e.Soon)
	ada.Use("link", "Web hooks")
	ada.Use("button", "New web hook")
	ada.Shows(".token-form .field", "All tasks")
	ada.Fill("textbox", "URL", "https://receiver.example/getwork")
	ada.Use("button", "Make the web hook")
	ada.Sees("Copy the secret now")
	ada.Use("button", "Done")
	ada.Sees("Nothing has been sent yet.")
	if denied := ada.Eval(`sessionStorage.denied ?? ''`); denied != "" {
		t.Errorf("denied: %s", denied)
	}

	// She logs in again in another window. This one makes no command in the former session's name, so it must be loaded again.
	ada.Eval(`(window.former = true, '')`)
	other := ada.Window()
	other.Do(chromedp.Navigate(at.Address + "/auth/login?again=1"))
	other.Picks("Ada")
	ada.Await(`!window.former`, e2e.Soon)
	ada.Use("button", "Send a test")
	ada.Shows(".test", "The test is being sent")
	at.ThrowsOut("Ada") // without a live channel: the page asks every ten seconds
	ada.Shows("#log-in h1", "You are logged out")
}

// The audit is read page by page.
func TestPageAuditPages(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	at := page.NewBank(t)
	for i := range 60 {
		at.Create(map[string]any{"name": fmt.Sprint("task-", i)})
	}
	b := page.NewBrowser(t, "")
	comesIn(b, at, "/audit?act=task.create", "Ada")
	const rows = `document.querySelectorAll('.audit tbody tr').length`
	b.Await(rows+` > 0`, e2e.Soon)
	first := b.Eval(`String(` + rows + `)`)
	b.Use("button", "Older")
	b.Await(rows+` === 60`, e2e.Soon)
	if first == "60" {
		t.Error("there is one page only")
	}
	if names := b.Eval(`String(new Set([...document.querySelectorAll('.audit tbody td:nth-child(2)')].map((e) => e.textContent)).size)`); names != "60" {
		t.Errorf("%s different tasks", names)
	}
}
