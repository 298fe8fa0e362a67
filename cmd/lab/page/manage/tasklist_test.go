package manage

import (
	"cmp"
	"fmt"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// A manager at one node makes a task, renames, pauses, hides and deletes it. A worker at another sees each change at
// the desk, without reloading the page, and so does the manager in the list.
func TestPageTaskListFollows(t *testing.T) {
	t.Parallel()
	oliver, mia := page.NewBrowser(t, ""), page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	mia.Manager(s.Nodes[0].URL, "Mia", "/tasks")
	oliver.Visit(s.Nodes[1].URL, "/", "Oliver")
	oliver.Await(`document.querySelector('#no-tasks')`, e2e.Soon)
	for _, b := range []*page.Browser{oliver, mia} {
		b.State("live", e2e.Soon)
		b.Eval(`(window.stays = 'yes', '')`)
	}
	const cards = `[...document.querySelectorAll('#tasks .task')].map((e) => e.querySelector('.name').textContent.trim() + (e.querySelector('.tag')?.textContent.trim() ?? '')).join()`
	const rows = `[...document.querySelectorAll('.task-list tbody tr')].map((e) => e.dataset.task + (e.querySelector('.tag')?.textContent ?? '')).join()`
	shown := func(desk, list string) {
		t.Helper()
		oliver.Await(fmt.Sprintf(`%s === %q`, cards, desk), e2e.Soon)
		mia.Await(fmt.Sprintf(`%s === %q`, rows, list), e2e.Soon)
	}
	page.InPage[any](mia, `await rest().createTask({ name: 'loans', title: 'Old loans', query: 'select 1 as item' })`)
	shown("Old loans", "loans")
	page.InPage[any](mia, `await rest().updateTask('loans', { name: 'debts', title: 'Old debts' }, '*')`)
	shown("Old debts", "debts")
	page.InPage[any](mia, `await rest().updateTask('debts', { paused: true }, '*')`)
	shown("Old debtspaused", "debtspaused")
	page.InPage[any](mia, `await rest().updateTask('debts', { paused: false, groups: ['others'] }, '*')`)
	shown("", "debts")
	page.InPage[any](mia, `await rest().updateTask('debts', { groups: [] }, '*')`)
	shown("Old debts", "debts")
	page.InPage[any](mia, `await rest().deleteTask('debts')`)
	shown("", "")
	oliver.Await(`document.querySelector('#no-tasks')`, e2e.Soon)
	for _, b := range []*page.Browser{oliver, mia} {
		if b.Eval(`String(window.stays)`) != "yes" {
			t.Error("the page was loaded again")
		}
	}
}

// Every view that lists tasks, or offers them, has a new one, and no longer a deleted one.
func TestPageViewsListTasks(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	morning(s)
	windows := everywhere(b, s.Nodes[0].URL)
	each(t, windows, func(b *page.Browser, before, _ string) {
		b.State("live", e2e.Soon)
		b.Sees(before)
	})
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "newcomer", "title": "The newcomer", "query": `select 1 as item`})
	each(t, windows, func(b *page.Browser, _, _ string) {
		b.Await(`document.querySelector('#view').textContent.includes('The newcomer')`, e2e.Soon)
	})
	page.Deletes(s, "newcomer", 1)
	each(t, windows, func(b *page.Browser, _, _ string) {
		b.Await(`!document.querySelector('#view').textContent.includes('The newcomer')`, e2e.Soon)
	})
}

// hasty makes a page's longer timers run sixty times faster, and counts the messages after which a list of tasks must
// be read again.
const hasty = `(() => {
	const { setInterval, setTimeout, WebSocket } = window;
	const short = (ms) => (ms >= 30_000 ? ms / 60 : ms);
	window.setInterval = (f, ms, ...rest) => setInterval(f, short(ms), ...rest);
	window.setTimeout = (f, ms, ...rest) => setTimeout(f, short(ms), ...rest);
	window.told = 0;
	window.WebSocket = class extends WebSocket {
		constructor(...how) {
			super(...how);
			this.addEventListener('message', ({ data }) => { if (['tasks', 'snapshot'].includes(JSON.parse(data).type)) told++; });
		}
	};
})()`

// With push nobody reads the list of tasks without being asked to, however long a page is open.
func TestPageTaskListIsNotPolled(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, hasty)
	s := e2e.NewSite(t, 1, "")
	morning(s)
	for _, view := range followed {
		t.Run(view.name, func(t *testing.T) {
			defer func(before *testing.T) { b.T = before }(b.T)
			b.T = t
			b.Visit(s.Nodes[0].URL, view.path, "Mary,manager")
			b.State("live", e2e.Soon)
			b.Sees(view.before)
			b.Eval(`(window.minutes = 0, setInterval(() => minutes++, 60_000), '')`)
			b.Await(`minutes >= 4`, e2e.Soon)
			said := page.InPage[struct{ Read, Told int }](b, `
				const asked = (path) => performance.getEntriesByType('resource').filter(({ name }) => new URL(name).pathname === path).length;
				return { read: asked('/api/v1/tasks'), told: told + asked('/api/v1/pipeline') };`) // reading the pipeline means no push just now, and no news of the list
			if said.Read == 0 || said.Read > 1+said.Told { // once when it is opened
				t.Errorf("the list was read %d times; there were %d reasons to read it again", said.Read, said.Told)
			}
		})
	}
}

// If the list can't be read when it has changed it is read later, even if nothing else happens.
func TestPageTaskListIsReadAgain(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	for path, user := range map[string]string{"/": "Oliver", "/people": "Mary,manager", "/items": "Mary,manager"} {
		b.Visit(s.Nodes[0].URL, path, user)
		b.State("live", e2e.Soon)
		b.Eval(`(() => {
			const { fetch } = window;
			window.failed = 0;
			window.fetch = async (path, init) => (path === '/api/v1/tasks' && failed++ < 1 ? new Response('', { status: 503 }) : fetch(path, init));
			return '';
		})()`)
		name := "new-at-" + cmp.Or(path[1:], "desk")
		page.Manages(s, "POST", "/tasks", map[string]any{"name": name, "query": nil})
		b.Await(fmt.Sprintf(`failed && document.querySelector('#view').textContent.includes(%q)`, name), 2*e2e.Soon)
	}
}

// A page that shows a list reads it within two seconds after an event, however many come until then; at once
// after push was away; and not while the page is hidden.
func TestPageKeepsAList(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	got := page.InPage[[]string](page.Workbench(t, s.Nodes[0].URL, "Oliver", "worker"), `
		const { keepListed } = await import('/static/reader.js');
		const { setTimeout, clearTimeout } = window;
		const timers = new Map();
		let serial = 0, hidden = false, chance = 0;
		window.setTimeout = (f, ms) => (timers.set(++serial, { f, ms }), serial);
		window.clearTimeout = (id) => timers.delete(id);
		Math.random = () => chance;
		Object.defineProperty(document, 'hidden', { get: () => hidden, configurable: true });
		const lines = [];
		const c = new EventTarget();
		const left = new AbortController();
		const tell = (type) => c.dispatchEvent(new CustomEvent(type));
		const due = () => [...timers.values()].map(({ ms }) => ms).join();
		const pass = () => { for (const [id, { f }] of timers) { timers.delete(id); f(); } };
		keepListed(c, () => lines.push('read'), left.signal);
		lines.push('at first ' + due());
		chance = 0.5;
		for (let i = 0; i < 9; i++) tell('tasks');
		lines.push('told ' + due());
		pass();
		chance = 0.999;
		tell('tasks');
		lines.push('told ' + due());
		tell('reread');
		lines.push('away ' + due());
		hidden = true;
		tell('tasks');
		tell('reread');
		tell('tasks');
		pass();
		lines.push('hidden');
		hidden = false;
		document.dispatchEvent(new Event('visibilitychange'));
		tell('tasks');
		left.abort();
		tell('tasks');
		tell('reread');
		lines.push('left ' + due());
		Object.assign(window, { setTimeout, clearTimeout });
		return lines;
	`)
	want := []string{"at first ", "told 1000", "read", "told 1998", "read", "away ", "hidden", "read", "left "}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The people view of a task that is no longer listed still names it, and all tasks can be chosen again.
func TestPagePeopleOfATaskThatIsGone(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	morning(s)
	b.Visit(s.Nodes[0].URL, "/people?task=verify", "Mary,manager")
	b.State("live", e2e.Soon)
	b.Await(`document.querySelector('.people-view select').selectedOptions[0].textContent === 'Morning'`, e2e.Soon)
	page.Changes(s, "verify", map[string]any{"name": "check"}, 1)
	b.Await(`[...document.querySelectorAll('.people-view option')].some((o) => o.value === 'check')`, e2e.Soon)
	b.Await(`document.querySelector('.people-view select').selectedOptions[0].textContent === 'verify'`, e2e.Soon)
	b.Eval(`((select) => { select.value = ''; select.dispatchEvent(new Event('change')); return ''; })(document.querySelector('.people-view select'))`)
	b.Sees("Viktor")
	b.Await(`!document.querySelector('.people-view .error').textContent && location.search === ''`, e2e.Soon)
}

// A task that is gone can be removed from a wall for which it was chosen.
func TestPageWallOfATaskThatIsGone(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	morning(s)
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "approve", "title": "Approvals", "query": nil})
	b.Visit(s.Nodes[0].URL, "/wall?task=verify,approve", "Mary,manager")
	b.Shows(".wall-state", "Live")
	b.Shows(".tile", "Morning")
	page.Changes(s, "verify", map[string]any{"name": "check"}, 1)
	b.Shows(".tile", "There is no such task")
	b.Eval(`(document.querySelector('.chooser').open = true, '')`)
	b.Await(`[...document.querySelectorAll('.chooser label')].some((l) => l.textContent.trim() === 'verify' && (l.querySelector('input').click(), true))`, e2e.Soon)
	b.Await(`[...document.querySelectorAll('.tile h2')].map((h) => h.textContent).join() === 'Approvals'`, e2e.Soon)
	if at := b.Eval(`location.search`); at != "?task=approve" {
		t.Errorf("the address asks for %s", at)
	}
}
