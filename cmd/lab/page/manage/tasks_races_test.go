package manage

import (
	"fmt"
	"strings"
	"testing"

	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// oneTask begins a script that opens a task's view, with calls that are answered when the script says so.
const oneTask = fakes + `
	const { openTask } = await view('tasks/task.js');
	const { defaults } = await view('tasks/settings.js');
	const c = client();
	const asked = later();
	const answer = later();
	const went = later();
	const v = (version, more) => ({ ...task('jobs'), ...defaults, name: 'jobs', query: 'select 1 as item', version,
		created_by: 'Mia', created_at: new Date().toISOString(), ...more });
	const slowly = (is) => async () => { asked.give(); await answer; return is; };
	const openAt = async (at, api, search) => {
		sessionStorage.clear();
		const p = { ...place(search), name: at };
		document.querySelector('#view').replaceChildren(p.element);
		const none = { tasks: async () => [], runs: async () => ({ runs: [] }), versions: async () => ({ versions: [v(1)] }) };
		await openTask({ ...app({ ...none, task: async () => ({ task: v(1) }), ...api }, c), go: () => went.give() }, p);
		await until(() => document.getElementById('set-title'));
	};
	const type = async (id, text) => {
		const field = document.getElementById(id);
		field.value = text;
		field.dispatchEvent(new Event('input'));
		await frame();
	};
	const shown = () => ({ conflict: Boolean(document.querySelector('.conflict')), version: document.querySelector('.task-head')?.innerText.match(/version (\d+)/)[1] });
`

// Rows that came while nothing was read are not left out between the newest and the older ones; pressing twice repeats
// none, and a slow answer replaces no newer one.
func TestPageTaskPagesOvertaken(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	for _, l := range []struct{ file, class, rows, id string }{{"runs", "Runs", "runs", "id"}, {"versions", "Versions", "versions", "version"}} {
		t.Run(l.rows, func(t *testing.T) {
			got := page.InPage[map[string]any](b, fakes+fmt.Sprintf(`
				const { %[2]s: Rows } = await view('tasks/%[1]s.js');
				const idOf = (row) => row.%[4]s;
				let newest = 30;
				const page = ({ limit, cursor }) => {
					const rows = [];
					for (let id = cursor ? cursor - 1 : newest; id > 0 && rows.length < limit; id--) rows.push({ %[4]s: id });
					return { %[3]s: rows, next_cursor: rows.length === limit ? idOf(rows.at(-1)) : undefined };
				};
				const made = (read) => new Rows({ read, changed() {}, ahead: () => 0 });
				const twice = made(async (filter) => page(filter));
				await twice.load();
				await Promise.all([twice.more(), twice.more()]);
				const repeated = twice.rows.length - new Set(twice.rows.map(idOf)).size;
				newest = 31;
				await twice.load();
				const kept = twice.rows.length;
				newest = 90;
				await twice.load();
				while (twice.next) await twice.more();
				const slow = later();
				const answers = [async () => { await slow; return { %[3]s: [{ %[4]s: 1 }] }; }, async () => ({ %[3]s: [{ %[4]s: 2 }] })];
				const race = made(() => answers.shift()());
				const first = race.load();
				await race.load();
				slow.give();
				await first;
				return { repeated, kept, missing: 90 - twice.rows.length, first: idOf(race.rows[0]) };
			`, l.file, l.class, l.rows, l.id))
			if got["repeated"] != 0.0 || got["kept"] != 31.0 || got["missing"] != 0.0 || got["first"] != 2.0 {
				t.Errorf("%v", got)
			}
		})
	}
}

// Another user's change that comes while one's own is being saved raises no question, because nothing is unsaved.
func TestPageTaskSaveOvertaken(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	got := page.InPage[map[string]any](raced(t), oneTask+`
		await openAt('jobs', { updateTask: slowly(v(2, { title: 'mine' })), versions: async () => ({ versions: [v(3, { title: 'mine', paused: true })] }) });
		await type('set-title', 'mine');
		document.getElementById('save').click();
		await asked;
		c.dispatchEvent(new CustomEvent('task', { detail: v(3, { title: 'mine', paused: true }) }));
		answer.give();
		await frame();
		await frame();
		return shown();
	`)
	if got["conflict"] != false || got["version"] != "3" {
		t.Errorf("%v", got)
	}
}

// Nor is a change undone that comes while an older version is being restored.
func TestPageTaskRestoreOvertaken(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	got := page.InPage[map[string]any](raced(t), oneTask+`
		const versions = [v(2, { title: 'second' }), v(1, { title: 'first' })];
		await openAt('jobs', { task: async () => ({ task: versions[0] }), versions: async () => ({ versions }), restore: slowly(v(3, { title: 'first' })) }, 'show=versions');
		await until(() => document.querySelector('[data-version="1"] .restore'));
		document.querySelector('[data-version="1"] .restore').click();
		await until(() => document.querySelector('dialog[open]'));
		[...document.querySelectorAll('dialog[open] button')].find((e) => e.textContent.trim() === 'Go back').click();
		await asked;
		versions.unshift(v(4, { title: 'theirs' }), v(3, { title: 'first' }));
		c.dispatchEvent(new CustomEvent('task', { detail: versions[0] }));
		answer.give();
		await until(() => document.querySelector('[data-version="4"]'));
		await frame();
		await frame();
		return { ...shown(), title: document.getElementById('set-title').value };
	`)
	if got["conflict"] != false || got["version"] != "4" || got["title"] != "theirs" {
		t.Errorf("%v", got)
	}
}

// Text that is typed while a new name is being saved is still there afterwards.
func TestPageTaskTypedWhileRenamed(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	got := page.InPage[string](raced(t), oneTask+`
		await openAt('jobs', { updateTask: slowly(v(2, { name: 'work' })) });
		await type('set-name', 'work');
		document.getElementById('save').click();
		await asked;
		await type('set-description', 'a long text');
		answer.give();
		await went;
		return JSON.stringify(Object.entries(sessionStorage));
	`)
	if !strings.Contains(got, "Mia: work") || !strings.Contains(got, "a long text") || strings.Contains(got, "Mia: jobs") {
		t.Errorf("the kept text is %s", got)
	}
}

// The same holds for text that is typed while a task is being created; and the created text is no longer kept.
func TestPageTaskTypedWhileCreated(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	got := page.InPage[map[string]any](raced(t), oneTask+`
		await openAt('', { createTask: slowly(v(1, { title: 'mine' })) }, 'new=1');
		await type('set-name', 'jobs');
		await type('set-query', 'select 1 as item');
		await type('set-title', 'mine');
		document.getElementById('save').click();
		await asked;
		await type('set-description', 'a long text');
		answer.give();
		await went;
		return Object.fromEntries(Object.entries(sessionStorage).filter(([k]) => k.startsWith('getwork draft')).map(([k, text]) => [k, JSON.stringify(JSON.parse(text).typed)]));
	`)
	if len(got) != 1 || got["getwork draft: Mia: jobs"] != `{"description":"a long text"}` {
		t.Errorf("the kept texts are %v", got)
	}
}

// Of two answers to the same question the slower, older one does not replace the newer.
func TestPageTaskListOvertaken(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := raced(t)
	got := page.InPage[string](b, fakes+`
		const { openList: open } = await view('tasks/list.js');
		const c = client();
		const first = later();
		let n = 0;
		const p = place();
		const loaded = open(app({ tasks: async () => {
			if (n++ === 1) { await first; return [task('jobs', { held: 1 })]; }
			return [task('jobs', { held: 2 })];
		} }, c), p);
		await loaded;
		const held = () => p.element.querySelectorAll('[data-task=jobs] td.num')[2]?.textContent;
		await until(() => held() === '2');
		c.dispatchEvent(new CustomEvent('reread'));
		await until(() => n === 2);
		c.dispatchEvent(new CustomEvent('task', { detail: task('jobs', { held: 5 }) }));
		await until(() => held() === '5');
		first.give();
		await frame();
		await frame();
		return held();
	`)
	if got != "5" {
		t.Errorf("%s are shown as held, want 5", got)
	}
}
