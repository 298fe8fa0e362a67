package manage

import (
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// Seven days is the most that may be asked for, and what the view asks for.
func TestPagePeopleSevenDays(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	page.Leased(s, "10m", "a", "b")
	s.Disposed(s.As("Oliver", 1), s.Takes("Oliver", 1)[0], "return", "0s")
	b.Visit(s.Nodes[0].URL, "/people?from=7d", "Mary,manager")
	b.Await(`document.querySelector('#view .error').textContent || document.querySelector('[data-user=Oliver]')`, e2e.Soon)
	if said := b.Eval(`document.querySelector('#view .error').textContent`); said != "" {
		t.Error(said)
	}
}

// A renamed task is shown under its new name, and its events still come.
func TestPageFloorRenamed(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("jobs", `select i as item from generate_series(1, 9) i`)
	s.Got(s.As("Tracy", 1), "jobs", 2)
	b.Visit(s.Nodes[0].URL, "/floor", "Otto,observer")
	b.State("live", e2e.Soon)
	b.Await(`document.querySelector('[data-task=jobs]')`, e2e.Soon)
	page.InPage[any](b, `const m = rest({ headers: { 'X-Getwork-User': 'Mia', 'X-Getwork-Role': 'manager' } });
		await m.updateTask('jobs', { name: 'tasks' }, '*');`)
	s.Got(s.As("Tracy", 1), "tasks", 2)
	b.Await(`document.querySelector('[data-task=tasks]') && !document.querySelector('[data-task=jobs]')`, e2e.Soon)
}

// A keyboard user who shows all tasks goes on from the same place.
func TestPageFloorShowAllKeepsFocus(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("jobs", `select i as item from generate_series(1, 9) i`)
	b.Visit(s.Nodes[0].URL, "/floor?task=jobs", "Otto,observer")
	b.Press(`.show-all`)
	b.Await(`document.querySelector('.show-all').hidden`, e2e.Soon)
	page.InPage[any](b, `await new Promise((f) => setTimeout(f, 100));`)
	if at := b.Eval(`document.activeElement.tagName`); at == "BODY" {
		t.Error("the focus is nowhere")
	}
}

// Older rows of one item are not shown as another's.
func TestPageItemsOlderOfAnother(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[string](b, fakes+`
		const { open } = await view('items.js');
		const older = later();
		const row = (id, item) => ({ id: String(id), task: 'jobs', item, user: item + '-user', state: 'completed', assigned_at: new Date().toISOString(), closed_at: new Date().toISOString() });
		const p = place('item=one&task=jobs');
		open(app({
			tasks: async () => [task('jobs')], explain: () => new Promise(() => {}),
			work: async ({ item, cursor }) => {
				if (cursor) { await older; return { work: [row(1, 'one')] }; }
				return { work: [row(item === 'one' ? 2 : 12, item)], next_cursor: 'x' };
			},
		}), p);
		const rows = () => [...p.element.querySelectorAll('.timeline b')].map((e) => e.textContent).join();
		await until(() => rows() === 'one-user');
		[...p.element.querySelectorAll('button')].find((e) => e.textContent === 'Show older').click();
		p.element.querySelector('#item').value = 'two';
		p.element.querySelector('form').requestSubmit();
		await until(() => rows() === 'two-user');
		older.give();
		await frame();
		return p.element.querySelector('#found').innerText + ': ' + rows();
	`)
	if got != "two: two-user" {
		t.Errorf("%q", got)
	}
}

// A read that fails leaves what events said since the last successful one; a slow read does not undo what came
// meanwhile.
func TestPageFloorStale(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[map[string]any](b, fakes+`
		const { open } = await view('floor.js');
		const c = client();
		let answer = async () => [task('jobs', { held: 1 })];
		const p = place();
		const none = async () => ({ requests: [], holders: [], tasks: [], people: [], items: [], absences: [] });
		open(app({ tasks: () => answer(), waiting: none, holders: none, history: none, returns: none, absences: none }, c), p);
		const held = () => p.element.querySelector('[data-task=jobs] [data-count=held]')?.textContent;
		const event = (n) => c.dispatchEvent(new CustomEvent('task', { detail: task('jobs', { held: n }) }));
		await until(() => held() === '1');
		event(7);
		await until(() => held() === '7');
		answer = async () => { throw Object.assign(new Error('busy'), { status: 503, retryAfter: 0 }); };
		c.dispatchEvent(new CustomEvent('reread'));
		await until(() => p.element.querySelector('.error').textContent);
		const failed = held();
		const slow = later();
		let asked = false;
		answer = async () => { asked = true; await slow; return [task('jobs', { held: 7 })]; };
		await until(() => asked);
		event(9);
		await until(() => held() === '9');
		slow.give();
		await frame();
		await frame();
		return { fault: failed, slow: held() };
	`)
	if got["fault"] != "7" || got["slow"] != "9" {
		t.Errorf("after a failure and a slow answer the page shows %v, but 7 and 9 are held", got)
	}
}

// The page releases what it shows.
func TestPageFloorReleasesWhatIsShown(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[string](b, fakes+`
		const { releaseDialog } = await view('release.js');
		let held = 'first';
		const listed = later();
		let released;
		releaseDialog(app({
			tasks: async () => [],
			release: async ({ token }) => {
				if (token) { released = token; return { count: 1 }; }
				await Promise.race([listed, new Promise((f) => setTimeout(f, 500))]);
				return { count: 1, token: held };
			},
			work: async () => {
				const work = [{ id: '1', item: held, task: 'jobs', user: 'Oliver', assigned_at: new Date().toISOString() }];
				held = 'second';
				listed.give();
				return { work };
			},
		}), { user: 'Oliver' });
		await until(() => document.querySelector('dialog tbody td'));
		const shown = document.querySelector('dialog tbody td').textContent;
		document.querySelector('#release').click();
		await until(() => released);
		return shown + ' shown, ' + released + ' released';
	`)
	if got != "first shown, first released" {
		t.Error(got)
	}
}

// A renamed task is not counted twice.
func TestPageFloorHistoryRenamed(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[float64](b, fakes+`
		const { History, spans } = await view('floor/history.js');
		const h = new History(spans[0]);
		const bucket = (at, held) => ({ at: new Date(at).toISOString(), requests: 0, given: 0, empty: 0, failed: 0, cancelled: 0, held });
		const now = Date.parse('2026-01-01T12:00:30Z');
		const all = (end) => { const list = []; for (let at = h.from(end); at <= end; at += 60000) list.push(bucket(at, 3)); return list; };
		h.take({ tasks: [{ task: 'old', buckets: all(now) }] }, []);
		h.take({ tasks: [{ task: 'new', buckets: all(now + 120000) }] }, []);
		return h.rows([], now + 120000).at(-1).held;
	`)
	if got != 3 {
		t.Errorf("%v are shown as held, want 3", got)
	}
}

// An item that was handed out 57 minutes ago counts for the last hour.
func TestPageWallHour(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[string](b, fakes+`
		const { open } = await view('wall.js');
		const handed = Date.now() - 57 * 60000;
		const none = async () => ({ requests: [], runs: [] });
		const p = place();
		open(app({
			tasks: async () => [task('jobs')], waiting: none, runs: none,
			history: async ({ from }) => {
				const buckets = [];
				for (let at = Date.parse(from); at < Date.now(); at += 300000) buckets.push({ at: new Date(at).toISOString(), assigned: at <= handed && handed < at + 300000 ? 1 : 0, completed: 0 });
				return { tasks: [{ task: 'jobs', buckets }] };
			},
		}), p);
		await until(() => p.element.querySelector('.given b'));
		return p.element.querySelector('.given b').textContent;
	`)
	if got != "1" {
		t.Errorf("%s are shown as handed out in the last hour, want 1", got)
	}
}

// Figures of one span of time are not shown as those of another.
func TestPagePeopleSpan(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[string](b, fakes+`
		const { open } = await view('people.js');
		let fail = false;
		const p = place();
		const none = async () => ({ absences: [], requests: [] });
		open(app({ tasks: async () => [], absences: none, waiting: none, returns: async () => {
			if (fail) throw new Error('busy');
			return { from: '', team: { closed: 10, returned: 3, share: 0.3 }, people: [], items: [] };
		} }), p);
		await until(() => p.element.textContent.includes('in the last 24 hours'));
		fail = true;
		p.element.querySelector('.pick button').click();
		await until(() => p.element.querySelector('.error').textContent);
		return p.element.innerText;
	`)
	if strings.Contains(got, "in the last 1 hour") {
		t.Error(got)
	}
}

// An event about a task that comes while the list is read is not undone by the list, on the wall and at the desk.
func TestPageWallStale(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[map[string]any](b, fakes+`
		const { open } = await view('wall.js');
		const { Tasks } = await view('desk/tasks.js');
		const slow = later();
		let asked = 0;
		const read = async () => { if (++asked > 1) await slow; return [task('jobs', { held: 1, max_request: 9 })]; };
		const c = client();
		const p = place();
		open({ ...app({ tasks: read }, c), me: { user: 'Oliver', role: 'worker' } }, p);
		const text = () => p.element.querySelector('.tile')?.innerText ?? '';
		await until(() => /\b1\b/.test(text()));
		const desk = new Tasks(Object.assign(c, { tasks: read, requests: new Map() }), () => {});
		const loaded = desk.load();
		c.dispatchEvent(new CustomEvent('reread'));
		await until(() => asked === 3);
		c.dispatchEvent(new CustomEvent('task', { detail: task('jobs', { held: 4711, max_request: 9 }) }));
		slow.give();
		await loaded;
		await frame();
		await frame();
		return { wall: /4.?711/.test(text()), desk: desk.cards.get('jobs').task.held };
	`)
	if got["wall"] != true || got["desk"] != 4711.0 {
		t.Errorf("%v", got)
	}
}

// When the last item is let go of, the focus stays on the button that releases items.
func TestPageFloorReleaseKeepsFocus(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[bool](b, fakes+`
		const { open } = await view('floor.js');
		const c = client();
		const p = place();
		const none = async () => ({ requests: [], holders: [], tasks: [], absences: [], items: [] });
		open(app({ tasks: async () => [task('jobs', { held: 1 })], waiting: none, holders: none, history: none, absences: none, returns: none }, c), p);
		const button = () => p.element.querySelector('[data-task=jobs] .let-go');
		await until(() => button()?.ariaDisabled === 'false');
		button().closest('[popover]').showPopover();
		button().focus();
		c.dispatchEvent(new CustomEvent('task', { detail: task('jobs') }));
		await until(() => button().ariaDisabled === 'true');
		button().click();
		await frame();
		return document.activeElement === button() && !button().disabled && !document.querySelector('dialog');
	`)
	if !got {
		t.Error("the focus is elsewhere, or it asks what to release though nothing is held")
	}
}

// A user's history is no longer read once it is hidden.
func TestPagePeopleClosed(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[string](b, fakes+`
		const { open } = await view('people.js');
		const p = place();
		const person = { user: 'Oliver', assigned: 1, closed: 1, completed: 1, returned: 0, never: 0, failed: 0, expired: 0, share: 0 };
		open(app({
			tasks: async () => [], work: async () => ({ work: [] }), absences: async () => ({ absences: [] }), waiting: async () => ({ requests: [] }),
			returns: async () => ({ team: { closed: 1, returned: 0, share: 0 }, people: [person], items: [] }),
		}), p);
		await until(() => p.element.querySelector('[data-user=Oliver] button'));
		const signals = [];
		const listen = document.addEventListener;
		document.addEventListener = (type, f, options) => { signals.push(options.signal); listen.call(document, type, f, options); };
		const button = p.element.querySelector('[data-user=Oliver] button');
		for (let i = 0; i < 3; i++) button.click();
		p.element.querySelector('.pick button').click();
		button.click();
		delete document.addEventListener;
		return signals.map((signal) => (signal.aborted ? 'ended' : 'listens')).join();
	`)
	if got != "ended,ended,listens" {
		t.Errorf("of three opened histories the last is shown; it is %s", got)
	}
}
