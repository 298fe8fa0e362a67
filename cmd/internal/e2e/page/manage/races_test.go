package manage

import (
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/e2e/page"
)

const fakes = `
	const base = new URL('.', document.querySelector('link[rel=modulepreload][href$="/views/tasks.js"]').href).href;
	const view = (name) => import(base + name);
	const later = () => { let give; const p = new Promise((f) => { give = f; }); return Object.assign(p, { give }); };
	const frame = () => new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(f, 60))));
	const client = () => Object.assign(new EventTarget(), { ahead: 0, subscribe() {}, unsubscribe() {}, left: () => null, state: { name: 'live' } });
	const place = (search = '') => {
		const element = document.createElement('div');
		document.body.append(element);
		return { element, name: '', search: new URLSearchParams(search), signal: new AbortController().signal };
	};
	const task = (name, more) => ({ name, title: '', waiting: 0, held: 0, shelf: 0, query: 'x', paused: false, version: 1, running_since: null, usual_seconds: null, ...more });
	const app = (api, c = client()) => ({ api, client: c, me: { user: 'Mia', role: 'manager' }, keys() {}, say() {}, go() {} });
`

func raced(t *testing.T) *page.Browser {
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks")
	return b
}

// A task that takes a deleted one's name is shown as it is.
func TestPageTasksNameTakenAgain(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("jobs", `select i as item from generate_series(1, 9) i`)
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks")
	b.State("live", e2e.Soon)
	page.InPage[any](b, `const m = rest();
		await m.updateTask('jobs', { title: 'First' }, '*');
		await until(() => document.querySelector('[data-task=jobs] th a')?.textContent === 'First');
		await m.deleteTask('jobs');
		await m.createTask({ name: 'jobs', title: 'Second', query: 'select 1 as item' });
		await m.getWork('jobs', { count: 1 }, {});`)
	b.Await(`document.querySelector('[data-task=jobs] th a').textContent === 'Second'`, e2e.Soon)
}
