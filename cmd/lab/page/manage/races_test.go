package manage

import (
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
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
	s := e2e.NewSite(t, 1, "")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks")
	return b
}

// A task that takes a deleted one's name is shown as it is.
func TestPageTasksNameTakenAgain(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
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

// An answer that comes too late, or twice, changes nothing: each script returns what is wrong, or ”.
func TestPageListsOvertaken(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	for name, script := range map[string]string{
		// The first read, of 'a', is answered last, with a next page that 'b' does not have.
		"audit": `
			const { open } = await view('audit.js');
			const slow = later();
			let hangs = false;
			const read = async (path) => {
				const asked = new URL(path, location).searchParams;
				const isA = asked.get('actor') === 'a';
				if (isA) await slow;
				if (hangs) await new Promise(() => {});
				return { body: { audit: [], users: [], next_cursor: isA ? 'x' : '' } };
			};
			const p = place('actor=a');
			const former = location.href;
			open(app({ call: (method, path) => read(path) }), p);
			await frame();
			const field = p.element.querySelector('[type=search]');
			field.value = 'b';
			p.element.querySelector('form').requestSubmit();
			await until(() => p.element.querySelector('.empty'));
			slow.give();
			await frame();
			hangs = true; // so that it is drawn as it is now
			p.element.querySelector('form').requestSubmit();
			await frame();
			history.replaceState(null, '', former);
			return [...p.element.querySelectorAll('button')].some((e) => e.textContent === 'Older') ? 'it offers the former next page' : '';`,
		"search": `
			const { Search } = await view('items/search.js');
			const { render } = await import(base + '../lib/lit-html/lit-html.js');
			const work = async ({ cursor }) => ({ work: [{ id: cursor ?? '0', task: 'jobs', item: 'i', user: 'u', state: 'held', assigned_at: new Date().toISOString() }], next_cursor: String(Number(cursor ?? 0) + 1) });
			const { element, signal } = place();
			const search = new Search({ app: app({ work }), signal, draw() {}, titleOf: (name) => name }, {});
			await frame();
			await Promise.all([search.read(), search.read()]);
			render(search.template(), element);
			return element.querySelectorAll('[data-work]').length === 2 ? '' : element.innerText;`,
		"nexts": `
			const { Nexts } = await view('desk/nexts.js');
			const asked = [], first = later();
			const card = { task: { max_request: 1 }, busy: false, request: null };
			const tasks = { cards: new Map([['jobs', card]]), ask: async (name, n) => {
				card.busy = true;
				await first;
				card.busy = false;
				return { id: String(asked.push(n)), task: name, state: 'assigned', assigned: n };
			} };
			const nexts = new Nexts(tasks, { failed() {}, ended() {} });
			for (let i = 0; i < 3; i++) nexts.ask('jobs');
			first.give();
			await frame();
			return asked.join() === '1,1,1' ? '' : 'it asked for ' + asked;`,
		"durations": `
			const { took } = await import(base + '../parts.js');
			const got = [59_400, 59_600, 119_600, 125_000].map(took).join();
			return got === '59.4 s,1 min 0 s,2 min 0 s,2 min 5 s' ? '' : got;`,
	} {
		if wrong := page.InPage[string](b, fakes+script); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}
