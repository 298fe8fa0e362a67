package look

import (
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// opensAt opens an address as a user, whoever was logged in before; nobody: empty.
func opensAt(b *page.Browser, at *page.Bank, path, user string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(at.Address + "/livez"))
	page.InPage[any](b, `await fetch('/auth/logout', { method: 'POST' }); sessionStorage.clear()`)
	if user == "" {
		b.Do(chromedp.Navigate(at.Address + path))
		b.Shows("#log-in a", "Log in")
		return
	}
	b.Do(chromedp.Navigate(at.Address + "/auth/login?again=1&return_to=" + url.QueryEscape(path)))
	b.Picks(user)
}

// What only those see who log in at a provider, in each state that matters: as in TestPageStates.
func TestPageBankStates(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	at := page.NewBank(t)
	page.Leased(at.Site, "1h", "L-2041", "L-2048", "L-2055", "L-2062")
	at.Create(map[string]any{"name": "documents", "title": "Sort documents"})
	b := page.NewBrowser(t, page.UndoLasts+";"+noting)
	opensAt(b, at, "/", "Tracy")
	at.Got(at.As("Tracy", 0), "verify", 2)
	at.Exec(`insert into getwork.principal (name, name_key, iss, sub, kind, role, groups, seen_at, created_at, blocked_at)
		select name, lower(name), $1, name, 'person', 'worker', '{loan-desk}', clock_timestamp() - n * interval '7 hours', clock_timestamp() - interval '90 days',
		case when n % 4 = 0 then clock_timestamp() - interval '1 day' end
		from unnest('{Uma,Viktor,Wanda,Xenia,Yorick,Zoé de la Fontaine-Besançon}'::text[]) with ordinality as u (name, n)`, at.IDP.Issuer)
	(&stage{Browser: b, s: at.Site, bank: at}).shows(t, bankStates)
}

// made makes a token of the page's user.
func made(label string, then func(*stage)) func(*stage) {
	return func(st *stage) {
		st.T.Helper()
		page.InPage[any](st.Browser, `const answer = await fetch('/api/v1/tokens', { method: 'POST', headers: { 'Content-Type': 'application/json' },
			body: JSON.stringify({ label: '`+label+`', scopes: ['read', 'work'], tasks: ['verify', 'documents'], expires_in: '240h' }) });
			if (answer.status !== 201) throw new Error(await answer.text());`)
		st.Do(chromedp.Reload())
		then(st)
	}
}

var bankStates = []state{
	{name: "log-in link"},
	{name: "logged out", user: "Oliver", path: "/", reach: func(st *stage) {
		st.State("live", e2e.Soon)
		st.s.Got(st.s.As("Oliver", 0), "verify", 1)
		st.Works(1, e2e.Soon)
		st.TypeNote("half a note")
		st.bank.ThrowsOut("Oliver")
		st.Sees("waits in this tab for the same person")
	}},
	{name: "blocked", user: "Oliver", path: "/", reach: func(st *stage) {
		set := func(at string) {
			st.s.Exec(`update getwork.principal set blocked_at = ` + at + `, changed = pg_current_xact_id() where name = 'Oliver'`)
		}
		set(`clock_timestamp()`)
		st.Sees("Your account is blocked; ask an administrator.")
		set(`null`)
	}},
	{name: "menu", user: "Oliver", path: "/", reach: presses("Logged in until", "button Oliver")},
	{name: "session ends", user: "Oliver", path: "/account", reach: func(st *stage) {
		st.s.Exec(`update getwork.session set idle_at = clock_timestamp() + interval '170 seconds', active_at = clock_timestamp() - interval '27 minutes' where ended_at is null`)
		page.InPage[any](st.Browser, `await until(async () => Date.parse((await (await fetch('/api/v1/me')).json()).idle_at) - Date.now() < 3 * 60_000)`)
		st.Do(chromedp.Reload())
		st.Sees("You have done nothing here for a while.")
	}, each: true},
	{name: "account", user: "Oliver", path: "/account", reach: made("nightly report", sees("nightly report"))},
	{name: "account new token", user: "Mia", path: "/account", reach: presses("all else that a manager may", "button New token")},
	{name: "account token", user: "Mia", path: "/account", reach: func(st *stage) {
		st.Use("button", "New token")
		st.Fill("textbox", "What it is for", "wall in the hall")
		presses("Copy the token now", "button Make the token")(st)
	}},
	{name: "account step-up", user: "Mia", path: "/account", reach: func(st *stage) {
		st.bank.ProvedLongAgo(st.Browser)
		st.Use("button", "New token")
		st.Fill("textbox", "What it is for", "release robot")
		st.Use("checkbox", "manage")
		presses("Log in again, and come back here", "button Make the token")(st)
	}},
	{name: "account end", user: "Oliver", path: "/account", reach: presses("This ends your sessions in all browsers", "button Sign out everywhere")},
	{name: "users", user: "Ada", path: "/users", reach: sees("Viktor")},
	{name: "user", user: "Boris", path: "/users?user=Tracy", reach: sees("What they did")},
	{name: "user block", user: "Ada", path: "/users?user=Tracy", reach: presses("They are out within two seconds", "button Block")},
	{name: "user rebind", user: "Ada", path: "/users?user=Tracy", reach: presses("For somebody who has a new account", "button Give the name")},
	{name: "user blocked", user: "Ada", path: "/users?user=Xenia", reach: sees("Blocked since")},
	{name: "service token", user: "Ada", path: "/users", reach: presses("Name of the service", "button New service token")},
	{name: "screen link", user: "Ada", path: "/users", reach: presses("Copy the link now", "button Link for a screen", "button Make the link")},
	{name: "audit", user: "Ada", path: "/audit", reach: sees("session.end")},
	{name: "audit detail", user: "Ada", path: "/audit?act=log-in", reach: func(st *stage) {
		st.Await(`document.querySelector('#view details')`, e2e.Soon)
		st.Eval(`(document.querySelector('#view details').open = true, '')`)
		st.Sees("Node")
	}},
	{name: "many links", user: "Boris", path: "/audit?actor=nobody", reach: sees("There is no such act.")},
}

// The same in Firefox, whose cookies, pop-overs and fields differ.
func TestFirefoxBankStates(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	f := page.NewFirefox(t, map[string]any{"ui.prefersReducedMotion": 1, "ui.useOverlayScrollbars": 1})
	at := page.NewBank(t)
	at.Create(map[string]any{"name": "documents", "title": "Sort documents"})
	for n, what := range []struct {
		name, user, path string
		reach            func(*page.Firefox, *e2e.Site)
	}{
		{"log-in link", "", "/wall", way("Log in")},
		{"menu", "Mia", "/account", way("Logged in until", "button", "Mia")},
		{"account token", "Mia", "/account", func(f *page.Firefox, s *e2e.Site) {
			f.Press("button", "New token")
			f.Fill(page.CSS("#token-label"), "nightly report")
			way("Copy the token now", "button", "Make the token")(f, s)
		}},
		{"users", "Ada", "/users", way("Name of the service", "button", "New service token")},
		{"user block", "Ada", "/users?user=Mia", way("They are out within two seconds", "button", "Block")},
		{"audit", "Ada", "/audit", way("Node", "summary", "More about")},
	} {
		t.Run(what.name, func(t *testing.T) {
			defer func(before *testing.T) { f.T, at.T = before, before }(f.T)
			f.T, at.T = t, t
			f.Size(page.Looks[0].Width, page.Looks[0].Height)
			if what.user == "" {
				f.Open(at.Address + what.path)
			} else {
				f.Open(at.Address + "/auth/login?again=1&return_to=" + what.path)
				f.Click(page.CSS(`button[value="` + page.Subs[what.user] + `"]`))
				f.Shows("button#who #name", what.user)
			}
			what.reach(f, at.Site)
			lookAt(f, t, n, what.name)
		})
	}
}
