package access

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// Answers come late, after events that were pushed meanwhile: requests that have ended stay ended and are reported
// once, and a client's own actions are no news.
func TestPageClientLateAnswers(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	open := page.Gated(s)
	b := page.Workbench(t, s.Nodes[0].URL, "Oliver", "worker")
	page.InPage[any](b, `
		window.late = Promise.withResolvers();
		window.client = connect({ fetch: async (path, init) => {
			const answer = await fetch(path, init);
			window.answered?.();
			if (init.method === 'POST') await late.promise;
			return answer;
		} });
		note(client, 'request', 'gone');
		await until(() => client.state.name === 'live');
		window.asked = client.getWork('verify', 2);`)
	e2e.Await(t, "the click is recorded", e2e.Soon, func() bool {
		return e2e.Column[int](s, `select count(*)::int from getwork.work_requested where state = 'pending'`)[0] == 1
	})
	open()
	b.Await(`client.work.size === 2`, e2e.Soon)
	page.InPage[any](b, `
		late.resolve();
		const answer = await asked;
		if (answer.state !== 'pending' || client.requests.size || client.work.size !== 2) throw new Error(answer.state + ' ' + client.requests.size + ' ' + client.work.size);
		window.late = Promise.withResolvers();
		const [work] = client.work.values();
		const done = client.dispose(work.id, { outcome: 'complete' });
		await until(() => client.work.size === 1);
		late.resolve();
		if ((await done).state !== 'completed') throw new Error('not completed');
		const { state } = await client.dispose(work.id, { outcome: 'complete' }); // again, which changes nothing
		if (state !== 'completed' || client.work.size !== 1) throw new Error('the same again: ' + state);
		window.late = Promise.withResolvers();
		const [other] = client.work.values();
		const extended = client.extend(other.id);
		await new Promise((answered) => { window.answered = answered; });
		await rest().dispose(other.id, { outcome: 'complete' });
		await until(() => client.work.size === 0);
		late.resolve();
		if ((await extended).state !== 'held' || client.work.size) throw new Error('what is closed came back');`)
	if got, want := page.InPage[[]string](b, `return noted.filter((n) => n !== 'request verify pending')`), []string{"request verify assigned", "gone 2 completed"}; !cmp.Equal(got, want) {
		t.Errorf("the client reported %q, want %q", got, want)
	}
}

// A call that the server had no room for is repeated when the server said, at most twice. A call that may have had its
// effect is not.
func TestPageClientRetryAfter(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "", "--max-calls", "1")
	b := page.Workbench(t, s.Nodes[0].URL, "Oliver", "worker")
	lock, err := s.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	page.InPage[any](b, `
		window.tries = [];
		let underWay = 0;
		// They are repeated when the server said, but not before there is room: there are only two more calls.
		const clock = { setTimeout: (f, ms) => setTimeout(() => until(() => underWay === 0).then(f), ms) };
		const api = rest({ clock, fetch: async (path, init) => {
			underWay++;
			const answer = await fetch(path, init).finally(() => underWay--);
			tries.push({ status: answer.status, at: performance.now() });
			return answer;
		} });
		window.answers = Promise.all([1, 2, 3].map(() => api.pipeline()));`)
	b.Await(`tries.some((one) => one.status === 429)`, e2e.Soon)
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	page.InPage[any](b, `
		await answers;
		const refused = tries.find((one) => one.status === 429);
		const last = tries.at(-1);
		if (last.status !== 200 || last.at - refused.at < 900) throw new Error('made again too soon: ' + JSON.stringify(tries));
		for (const [status, want, after] of [[429, 3, 3], [429, 1, 2400], [503, 1, 3]]) {
			let made = 0;
			const clock = { setTimeout: (f, ms) => { if (ms !== 3000) throw new Error('waits ' + ms); f(); } };
			const api = rest({ clock, fetch: async () => (made++, new Response('', { status, headers: { 'Retry-After': after } })) });
			const problem = await api.me().then(() => null, (e) => e);
			if (made !== want || problem.status !== status || problem.retryAfter !== 1000 * after) throw new Error(status + ': made ' + made + ' times, ' + problem);
		}`)
}

// The calls of a manager and an observer, on a real node.
func TestPageClientManages(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	b := page.Workbench(t, s.Nodes[0].URL, "Mary", "manager")
	page.InPage[any](b, `
		const api = rest();
		const same = (got, want) => { if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error(JSON.stringify(got) + ', want ' + JSON.stringify(want)); };
		const refused = async (call, type) => same(await call.then(() => 'done', (e) => (e instanceof Problem ? e.type : e)), '/problems/' + type);
		same((await api.me()).role, 'manager');
		await api.createTask({ name: 'audit', query: 'select i::text as item from generate_series(1, 3) i order by i', max_attempts: 1 });
		await refused(api.createTask({ name: 'audit', query: null }), 'exists');
		const { tag } = await api.task('audit');
		same((await api.updateTask('audit', { title: 'Audit' }, tag)).title, 'Audit');
		await refused(api.updateTask('audit', { title: 'Other' }, tag), 'stale-version');
		same((await api.versions('audit', { limit: 1 })).versions.map((v) => v.version), [2]);
		same((await api.restore('audit', 1, (await api.task('audit')).tag)).title, '');
		same((await api.preview('audit', { limit: 2 })).rows.length, 2);
		same((await api.preview(null, { query: 'select 1 as item', slots: 2 })).rows[0].slots, 2);
		await refused(api.preview('audit', { query: 'select' }), 'query-refused');
		await refused(api.task('nothing/else'), 'not-found');
		const { body: click } = await api.getWork('audit', { count: 2 }, { Prefer: 'wait=20' });
		same(click.work.map((w) => w.item), ['1', '2']);
		same((await api.request(click.id, (await api.request(click.id)).tag)).status, 304);
		same((await api.extend(click.work[0].id)).state, 'held');
		same((await api.reassign(click.work[0].id, 'Oliver', true)).user, 'Oliver');
		same((await api.work({ task: 'audit', user: 'Oliver', state: '' })).work.map((w) => w.item), ['1']);
		same((await api.dispose(click.work[1].id, { outcome: 'fail', error: 'no paper' })).state, 'never');
		same((await api.redrive('audit', ['2'])).count, 1);
		const dry = await api.release({ user: 'Oliver', dry_run: true });
		same([dry.count, (await api.release({ user: 'Oliver', token: dry.token })).count], [1, 1]);
		same((await api.claim('audit', '3')).item, '3');
		same((await api.explain('audit', '3')).matches, true);
		same((await api.runs('audit')).runs.length >= 1, true);
		await api.createTask({ name: 'inbox', query: null });
		same(await api.push('inbox', [{ item: 'a/b' }, { item: 'c' }]), { accepted: 2, duplicates: 0 });
		same((await api.claim('inbox', 'a/b')).item, 'a/b');
		await api.createTask({ name: 'later', query: null });
		const { body: waits } = await api.getWork('later', { count: 1, linger: '1h' });
		same((await api.waiting({ task: 'later' })).requests.map((r) => r.id), [waits.id]);
		same((await api.cancel(waits.id)).state, 'cancelled');
		same((await api.history({ task: 'audit,inbox' })).tasks.map((h) => h.task), ['audit', 'inbox']);
		same((await api.returns({ task: 'audit' })).people.length >= 1, true);
		await refused(api.deleteTask('audit'), 'in-use');
		same(await api.deleteTask('later'), undefined);
		same((await api.tasks()).map((t) => t.name), ['audit', 'inbox']);`)
}

// In the page only lit-html can turn text into markup or scripts.
func TestPagePolicy(t *testing.T) {
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	b := page.NewBrowser(t, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	for _, try := range []string{
		`document.body.innerHTML = '<b>x</b>'`,
		`document.createElement('script').src = 'https://elsewhere.example/x.js'`,
		`document.createElement('script').text = 'x'`,
		`new DOMParser().parseFromString('<b>x</b>', 'text/html')`,
		`trustedTypes.createPolicy('other', {})`,
	} {
		if done := b.Eval(`(() => { try { ` + try + `; return 'done'; } catch (e) { return e.name; } })()`); done != "TypeError" {
			t.Errorf("%s: %s", try, done)
		}
	}
	b.Forgives("") // the violations of the attempts
}
