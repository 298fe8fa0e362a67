package manage

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// view is a view of the page, and what it shows before and after the evening of [morning].
type view struct{ name, path, before, after string }

// followed are the views that follow what happens.
var followed = []view{
	{"desk", "/", "Morning", "Evening"},
	{"floor", "/floor", "Morning", "Evening"},
	{"tasks", "/tasks", "Morning", "Evening"},
	{"items", "/items?task=verify&item=1", "Tracy has had it", "never again"},
	{"people", "/people", "Viktor", "Walter"},
	{"wall", "/wall?task=verify", "Morning", "Evening"},
}

// morning creates a task whose title says morning, an item that Tracy holds, and one that Viktor has returned.
func morning(s *e2e.Site) (evening func()) {
	s.T.Helper()
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "title": "Morning", "query": `select i as item from generate_series(1, 9) i`})
	first := s.Takes("Tracy", 1)[0]
	if _, a, err := s.As("Viktor", 0).Dispose(s.T.Context(), s.Takes("Viktor", 1)[0].ID, "return", "1h"); err != nil || a.Status != 200 {
		s.T.Fatal(a.Status, err)
	}
	return func() {
		s.T.Helper()
		page.Changes(s, "verify", map[string]any{"title": "Evening"}, 1)
		walter := s.As("Walter", 1)
		r, a, err := walter.GetWork(s.T.Context(), "verify", 1, "Prefer", "wait=20")
		if err != nil || len(r.Work) != 1 {
			s.T.Fatalf("%d %s %v", a.Status, a.Body, err)
		}
		if _, a, err := walter.Dispose(s.T.Context(), r.Work[0].ID, "return", "1h"); err != nil || a.Status != 200 {
			s.T.Fatalf("return: %d %s %v", a.Status, a.Body, err)
		}
		if _, a, err := s.As("Tracy", 1).Dispose(s.T.Context(), first.ID, "never", ""); err != nil || a.Status != 200 {
			s.T.Fatalf("never: %d %s %v", a.Status, a.Body, err)
		}
	}
}

// everywhere opens all views, each in a window.
func everywhere(b *page.Browser, address string) map[string]*page.Browser {
	b.T.Helper()
	b.Visit(address, "/", "Mary,manager")
	windows := map[string]*page.Browser{}
	for _, view := range followed {
		windows[view.name] = b.Window()
		windows[view.name].Do(chromedp.Navigate(address + view.path))
	}
	return windows
}

// each runs a step in every view's window.
func each(t *testing.T, windows map[string]*page.Browser, step func(b *page.Browser, before, after string)) {
	t.Helper()
	for _, view := range followed {
		t.Run(view.name, func(t *testing.T) {
			b := windows[view.name]
			defer func(before *testing.T) { b.T = before }(b.T)
			b.T = t
			step(b, view.before, view.after)
		})
	}
}

// The pages' node is killed and comes back, while others work on: each view says so, and then is right again.
func TestPageViewsAfterAKill(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	evening := morning(s)
	windows := everywhere(b, s.Nodes[0].URL)
	each(t, windows, func(b *page.Browser, before, _ string) {
		b.State("live", e2e.Soon)
		b.Sees(before)
	})
	s.Nodes[0].Kill()
	each(t, windows, func(b *page.Browser, before, _ string) {
		b.Banner("the server can’t be reached", e2e.Soon)
		b.Sees(before) // the last state is still there
	})
	evening()
	s.Nodes[0].Restart()
	each(t, windows, func(b *page.Browser, _, after string) {
		b.State("live", 3*e2e.Soon)
		b.Await(`document.querySelector('#banner').hidden`, e2e.Soon)
		b.Sees(after)
	})
}

// Without a socket each view says so, and follows by polling.
func TestPageViewsWithoutPush(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	evening := morning(s)
	address, _ := page.WithoutSockets(t, s.Nodes[0])
	windows := everywhere(b, address)
	each(t, windows, func(b *page.Browser, before, _ string) {
		b.Banner("The live connection is lost; polling every", e2e.Soon)
		b.Sees(before)
	})
	evening()
	each(t, windows, func(b *page.Browser, _, after string) {
		b.Await(fmt.Sprintf(`document.body.innerText.includes(%q)`, after), 3*e2e.Soon)
	})
}

// With push each view follows, and asks for nothing while nothing happens.
func TestPageViewsFollow(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	evening := morning(s)
	windows := everywhere(b, s.Nodes[0].URL)
	each(t, windows, func(b *page.Browser, before, _ string) {
		b.State("live", e2e.Soon)
		b.Sees(before)
	})
	evening()
	each(t, windows, func(b *page.Browser, _, after string) {
		b.Sees(after)
	})
	each(t, windows, func(b *page.Browser, _, _ string) { // views read the rest within ten seconds
		b.Await(`performance.now() - Math.max(0, ...performance.getEntriesByType('resource').map((e) => e.responseEnd)) > 13000`, 3*e2e.Soon)
	})
}

// cell returns a user's entry in a column of the page's tables, or "".
func cell(b *page.Browser, who, column string) string {
	b.T.Helper()
	return b.Eval(fmt.Sprintf(`[...document.querySelectorAll('table')].flatMap((table) => {
		const i = [...table.tHead?.rows[0]?.cells ?? []].findIndex((c) => c.innerText.trim() === %q);
		const row = [...table.tBodies].flatMap((b) => [...b.rows]).find((r) => r.dataset.user === %q);
		return i >= 0 && row ? [row.cells[i].innerText.trim()] : [];
	})[0] ?? ''`, column, who))
}

// tells waits until a table has that entry for a user.
func tells(b *page.Browser, who, column, what string, within time.Duration) {
	b.T.Helper()
	e2e.Await(b.T, fmt.Sprintf("%s of %s is %s; it is %q", column, who, what, cell(b, who, column)), within, func() bool { return cell(b, who, column) == what })
}

// A team on three nodes: Oliver and Tracy ask while one query runs, both get their work by push, and let go of it;
// Mary, at the third node, sees it on the floor and among the people. Everybody finds things by the names that the page
// gives them.
func TestPageTeam(t *testing.T) {
	t.Parallel()
	oliver, tracy, mary := page.NewBrowser(t, ""), page.NewBrowser(t, ""), page.NewBrowser(t, "")
	s := e2e.NewSite(t, 3, "")
	open := page.Gated(s)
	oliver.Visit(s.Nodes[0].URL, "/", "Oliver")
	tracy.Visit(s.Nodes[1].URL, "/", "Tracy")
	mary.Visit(s.Nodes[2].URL, "/floor", "Mary,manager")
	people := mary.Window()
	people.Do(chromedp.Navigate(s.Nodes[2].URL + "/people"))
	for _, b := range []*page.Browser{oliver, tracy, mary, people} {
		b.State("live", e2e.Soon)
	}

	oliver.Use("button", "verify")
	oliver.Use("radio", "2")
	oliver.Use("button", "Get Work: verify")
	follows := func(part, who, what string) {
		t.Helper()
		mary.Promptly(s, what+" of "+who, 4*time.Second, func() bool {
			return mary.Yes(fmt.Sprintf(`[...document.querySelectorAll('[data-part=%s] li')].some((li) => li.innerText.includes(%q) && li.innerText.includes(%q))`, part, who, what))
		})
	}
	follows("waiting", "Oliver", "place 1")
	mary.Sees("runs for")
	tracy.Use("button", "Get Work: verify")
	tracy.Sees("Cancel")
	follows("waiting", "Tracy", "place 2")
	open()
	page.Answered(s)
	oliver.GetsWorks(s, 2)
	tracy.GetsWorks(s, 3)
	mary.Promptly(s, "nobody waits", 4*time.Second, func() bool { return mary.Yes(`document.body.innerText.includes('Nobody waits.')`) })
	unfold(mary, "Oliver")
	follows("held", "Oliver", "no lease")

	oliver.Fill("textbox", "Note on 1", "checked twice")
	oliver.Use("button", "Complete")
	oliver.Use("button", "Give back")
	oliver.Use("button", "Return for 4 h")
	tracy.Use("button", "Remove from queue")
	tracy.Use("button", "Really remove it?")
	s.Await("they have let go", e2e.Soon, `
		select coalesce(string_agg(item || ' ' || state || coalesce(' ' || after, '') || coalesce(' ' || note, ''), ', ' order by item)
		  = '1 completed checked twice, 2 returned 04:00:00, 3 never', false) from getwork.work where state <> 'held'`)
	mary.Promptly(s, "Oliver is gone", 4*time.Second, func() bool { return mary.Yes(`!document.body.innerText.includes('Oliver')`) })
	mary.Sees("0 people waiting, 2 held")
	for _, says := range [][3]string{{"Oliver", "Done", "1"}, {"Oliver", "Gave back", "1"}, {"Tracy", "Never again", "1"}, {"Tracy", "Handed out", "3"}} {
		tells(people, says[0], says[1], says[2], e2e.Soon)
	}
}

// A new user gets work and returns one loan until tomorrow. They ask for it again, and read why they don't get it.
// Their manager finds out why nobody does. Both only use what they see.
func TestPageNewcomer(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "title": "Verify bank account", "description": "Oldest first.", "query": `select 'loan-' || i as item from generate_series(7, 8) i order by i`})
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	b.Sees("Who are you?")
	b.Fill("textbox", "Name", "Nina")
	b.Leave("button", "Continue")
	b.Sees("Your desk is clear.")
	b.Use("button", "Verify bank account")
	b.Use("radio", "2")
	b.Use("button", "Get Work: Verify bank account")
	b.Sees("loan-7")
	b.Sees("loan-8")
	b.Use("button", "Give back")
	b.Use("button", "Return until tomorrow, 9:00 AM")
	b.Sees("loan-7: returned")
	s.Await("it is returned", e2e.Soon, `select available_at > now() from getwork.work where item = 'loan-7' and state = 'returned'`)
	b.Use("button", "Get Work: Verify bank account")
	b.Sees("Everything that matches is held by you or others, or put off.")
	b.Sees("tomorrow")
	b.Use("button", "Nina , worker")
	b.Leave("button", "Log out")
	b.Sees("Who are you?")
	b.Fill("textbox", "Name", "Mary")
	b.Choose("Role", "Manager")
	b.Leave("button", "Continue")
	b.Use("link", "Items")
	b.Fill("textbox", "Item", "loan-7\r")
	b.Sees("Not handed out before tomorrow 9:00")
	b.Sees("Nina returned it")
}
