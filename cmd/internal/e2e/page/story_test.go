package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// followed are the views, and what each shows before and after the evening of [morning].
var followed = []struct{ name, path, before, after string }{
	{"desk", "/", "Morning", "Evening"},
	{"floor", "/floor", "Morning", "Evening"},
	{"tasks", "/tasks", "Morning", "Evening"},
	{"items", "/items?task=verify&item=1", "Tracy has it", "never again"},
	{"people", "/people", "Viktor", "Walter"},
	{"wall", "/wall?task=verify", "Morning", "Evening"},
}

// morning creates a task whose title says morning, an item that Tracy holds, and one that Viktor has returned.
func morning(s *site) (evening func()) {
	s.T.Helper()
	s.manages("POST", "/tasks", map[string]any{"name": "verify", "title": "Morning", "query": `select i as item from generate_series(1, 9) i`})
	first := s.Takes("Tracy", 1)[0]
	if _, a, err := s.As("Viktor", 0).Dispose(s.T.Context(), s.Takes("Viktor", 1)[0].ID, "return", "1h"); err != nil || a.Status != 200 {
		s.T.Fatal(a.Status, err)
	}
	return func() {
		s.T.Helper()
		s.changes("verify", map[string]any{"title": "Evening"}, 1)
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

// changes has a manager at the i-th node change a task.
func (s *site) changes(task string, settings map[string]any, i int) {
	s.T.Helper()
	mary := s.As("mary", i)
	mary.Role = "manager"
	if a, err := mary.Do(s.T.Context(), "PATCH", "/api/v1/tasks/"+task, settings, "If-Match", "*"); err != nil || a.Status != 200 {
		s.T.Fatalf("change the task: %d %s %v", a.Status, a.Body, err)
	}
}

// window opens another window of the same browser, with the same log-in.
func (b *browser) window() *browser {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewWindow(true))
	other := &browser{t: b.t, ctx: ctx}
	b.t.Cleanup(cancel)
	other.alwaysFocused()
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		b.t.Fatal(err)
	}
	return other
}

// everywhere opens all views, each in a window.
func everywhere(b *browser, address string) map[string]*browser {
	b.t.Helper()
	b.visit(address, "/", "Mary,manager")
	windows := map[string]*browser{}
	for _, view := range followed {
		windows[view.name] = b.window()
		windows[view.name].do(chromedp.Navigate(address + view.path))
	}
	return windows
}

// each runs a step in every view's window.
func each(t *testing.T, windows map[string]*browser, step func(b *browser, before, after string)) {
	t.Helper()
	for _, view := range followed {
		t.Run(view.name, func(t *testing.T) {
			b := windows[view.name]
			defer func(before *testing.T) { b.t = before }(b.t)
			b.t = t
			step(b, view.before, view.after)
		})
	}
}

// The pages' node is killed and comes back, while others work on: each view says so, and then is right again.
func TestPageViewsAfterAKill(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 2, "")
	evening := morning(s)
	windows := everywhere(b, s.Nodes[0].URL)
	each(t, windows, func(b *browser, before, _ string) {
		b.state("live", e2e.Soon)
		b.sees(before)
	})
	s.Nodes[0].Kill()
	each(t, windows, func(b *browser, before, _ string) {
		b.banner("the server can’t be reached", e2e.Soon)
		b.sees(before) // the last state is still there
	})
	evening()
	s.Nodes[0].Restart()
	each(t, windows, func(b *browser, _, after string) {
		b.state("live", 3*e2e.Soon)
		b.await(`document.querySelector('#banner').hidden`, e2e.Soon)
		b.sees(after)
	})
}

// Without a socket each view says so, and follows by polling.
func TestPageViewsWithoutPush(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 2, "")
	evening := morning(s)
	address, _ := withoutSockets(t, s.Nodes[0])
	windows := everywhere(b, address)
	each(t, windows, func(b *browser, before, _ string) {
		b.banner("Push is gone; asking every", e2e.Soon)
		b.sees(before)
	})
	evening()
	each(t, windows, func(b *browser, _, after string) {
		b.await(fmt.Sprintf(`document.body.innerText.includes(%q)`, after), 3*e2e.Soon)
	})
}

// With push each view follows, and asks for nothing while nothing happens.
func TestPageViewsFollow(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 2, "")
	evening := morning(s)
	windows := everywhere(b, s.Nodes[0].URL)
	each(t, windows, func(b *browser, before, _ string) {
		b.state("live", e2e.Soon)
		b.sees(before)
	})
	evening()
	each(t, windows, func(b *browser, _, after string) {
		b.sees(after)
	})
	each(t, windows, func(b *browser, _, _ string) { // views read the rest within ten seconds
		b.await(`performance.now() - Math.max(0, ...performance.getEntriesByType('resource').map((e) => e.responseEnd)) > 13000`, 3*e2e.Soon)
	})
}

// cell returns a user's entry in a column of the page's tables, or "".
func (b *browser) cell(who, column string) string {
	b.t.Helper()
	return b.eval(fmt.Sprintf(`[...document.querySelectorAll('table')].flatMap((table) => {
		const i = [...table.tHead?.rows[0]?.cells ?? []].findIndex((c) => c.innerText.trim() === %q);
		const row = [...table.tBodies].flatMap((b) => [...b.rows]).find((r) => r.cells[0].innerText.trim().startsWith(%q));
		return i >= 0 && row ? [row.cells[i].innerText.trim()] : [];
	})[0] ?? ''`, column, who))
}

// tells waits until a table has that entry for a user.
func (b *browser) tells(who, column, what string, within time.Duration) {
	b.t.Helper()
	e2e.Await(b.t, fmt.Sprintf("%s of %s is %s; it is %q", column, who, what, b.cell(who, column)), within, func() bool { return b.cell(who, column) == what })
}

// A team on three nodes: Oliver and Tracy ask while one query runs, both get their work by push, and let go of it;
// Mary, at the third node, sees it on the floor and among the people. Everybody finds things by the names that the page
// gives them.
func TestPageTeam(t *testing.T) {
	t.Parallel()
	oliver, tracy, mary := newBrowser(t, ""), newBrowser(t, ""), newBrowser(t, "")
	s := newSite(t, 3, "")
	open := gated(s)
	oliver.visit(s.Nodes[0].URL, "/", "Oliver")
	tracy.visit(s.Nodes[1].URL, "/", "Tracy")
	mary.visit(s.Nodes[2].URL, "/floor", "Mary,manager")
	people := mary.window()
	people.do(chromedp.Navigate(s.Nodes[2].URL + "/people"))
	for _, b := range []*browser{oliver, tracy, mary, people} {
		b.state("live", e2e.Soon)
	}

	oliver.use("DisclosureTriangle", "verify")
	oliver.use("radio", "2")
	oliver.use("button", "Get Work: verify")
	follows := func(who, column, what string) {
		t.Helper()
		s.promptly(mary, column+" of "+who+" is "+what, 4*time.Second, func() bool { return mary.cell(who, column) == what })
	}
	follows("Oliver", "Place", "1")
	mary.sees("Running for")
	tracy.use("button", "Get Work: verify")
	tracy.sees("Cancel")
	follows("Tracy", "Place", "2")
	open()
	s.answered()
	s.getsWorks(oliver, 2)
	s.getsWorks(tracy, 3)
	s.promptly(mary, "nobody waits", 4*time.Second, func() bool { return mary.yes(`document.body.innerText.includes('Nobody waits.')`) })
	mary.use("DisclosureTriangle", "Oliver")
	follows("1", "Lease", "none")

	oliver.use("DisclosureTriangle", "Note")
	oliver.fill("textbox", "Note on 1", "checked twice")
	oliver.use("button", "Complete")
	oliver.use("button", "Return")
	oliver.use("button", "Return for 4 h")
	tracy.use("button", "More")
	tracy.use("button", "Remove from queue")
	tracy.use("button", "Really remove it?")
	s.Await("they have let go", e2e.Soon, `
		select coalesce(string_agg(item || ' ' || state || coalesce(' ' || after, '') || coalesce(' ' || note, ''), ', ' order by item)
		  = '1 completed checked twice, 2 returned 04:00:00, 3 never', false) from getwork.work where state <> 'held'`)
	s.promptly(mary, "Oliver is gone", 4*time.Second, func() bool { return mary.yes(`!document.body.innerText.includes('Oliver')`) })
	mary.sees("2 held")
	for _, says := range [][3]string{{"Oliver", "Completed", "1"}, {"Oliver", "Returned", "1"}, {"Tracy", "Never again", "1"}, {"Tracy", "Handed out", "3"}} {
		people.tells(says[0], says[1], says[2], e2e.Soon)
	}
}

// A new user gets work and returns one loan until tomorrow. They ask for it again, and are told why they don't get it.
// Their manager finds out why nobody does. Both only use what they see.
func TestPageNewcomer(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.manages("POST", "/tasks", map[string]any{"name": "verify", "title": "Verify bank account", "description": "Oldest first.", "query": `select 'loan-' || i as item from generate_series(7, 8) i order by i`})
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	b.sees("Who are you?")
	b.fill("textbox", "Name", "Nina")
	b.leave("button", "Continue")
	b.sees("You hold nothing.")
	b.use("DisclosureTriangle", "Verify bank account")
	b.use("radio", "2")
	b.use("button", "Get Work")
	b.sees("loan-7")
	b.sees("loan-8")
	b.use("button", "Return")
	b.use("button", "Return until tomorrow")
	b.sees("loan-7: returned")
	s.Await("it is returned", e2e.Soon, `select available_at > now() from getwork.work where item = 'loan-7' and state = 'returned'`)
	b.use("button", "Get Work")
	b.sees("Everything that matches is held by you or others, or put off.")
	b.sees("tomorrow")
	b.leave("button", "Log out")
	b.sees("Who are you?")
	b.fill("textbox", "Name", "Mary")
	b.choose("Role", "Manager")
	b.leave("button", "Continue")
	b.use("link", "Items")
	b.fill("textbox", "Item", "loan-7\r")
	b.sees("Not handed out before tomorrow 9:00")
	b.sees("Nina returned it")
}
