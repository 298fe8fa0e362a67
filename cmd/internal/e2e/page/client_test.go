package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/proxy"
)

// scripts run in a page of the node, beside the page's own client: they have getwork.js, until(so), which waits for
// something, and noted, to which note(client) writes a client's events.
const scripts = `
	const { connect, rest, Problem } = await import('/static/getwork.js');
	const until = async (so, what) => {
		for (const end = performance.now() + 20000; !await so(); await new Promise((f) => setTimeout(f, 10))) {
			if (performance.now() > end) throw new Error('waited in vain for ' + so + ' ' + JSON.stringify(window.noted));
		}
	};
	const noted = window.noted ??= [];
	const note = (client, ...types) => types.forEach((type) => client.addEventListener(type, ({ detail }) => noted.push(
		type === 'state' ? detail.name + (detail.reason ? ' ' + detail.reason : '')
		: type + (detail ? ' ' + (detail.item ?? detail.name ?? detail.task ?? detail.type ?? detail.user) + ' ' + (detail.state ?? '') : ''))));
`

// inPage runs a script in the page, and returns its result, decoded from JSON.
func inPage[T any](b *browser, script string) (v T) {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`(async () => {`+scripts+script+`})().then((v) => JSON.stringify(v ?? null), (e) => JSON.stringify({ failed: e.stack }))`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	if strings.HasPrefix(text, `{"failed":`) {
		b.t.Fatal(text)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	return v
}

// workbench opens a page of a node where nobody is logged in, so that scripts have the connection for themselves.
func workbench(t *testing.T, url, user, role string) *browser {
	t.Helper()
	b := newBrowser(t, "")
	b.do(chromedp.Navigate(url + "/livez"))
	inPage[any](b, fmt.Sprintf(`await rest().logIn(%q, %q)`, user, role))
	return b
}

// An observer is told of tasks, and never reads a pipeline, which is not allowed, either by push or by polling. When
// push is gone, the observer is told to read again with each poll, and once more when it is back.
func TestPageClientWatches(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 5) i`)
	line, err := proxy.Start(strings.TrimPrefix(s.Nodes[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	b := workbench(t, "http://"+line.Addr(), "Olga", "observer")
	inPage[any](b, `
		window.paths = [];
		window.client = connect({
			watch: true, delays: { poll: [100, 200, 300], socket: [50, 100], silence: 60_000, steady: 0 }, // a machine that stands still is not silent
			fetch: (path, init) => { paths.push(path); return fetch(path, init); },
		});
		note(client, 'state', 'reread', 'task');
		client.subscribe(['verify']);
		await until(() => client.state.name === 'live');
		await until(() => noted.some((n) => n.startsWith('task verify')));
		if (noted.includes('reread') || paths.length) throw new Error('while push works: ' + noted + ' ' + paths);
		const asked = [];
		const polling = connect({
			watch: true, delays: { poll: [10, 10, 10] }, WebSocket: class { constructor() { throw new Error('none here'); } },
			fetch: (path, init) => { asked.push(path); return fetch(path, init); },
		});
		await until(() => asked.length > 2 && polling.state.next);
		if (asked.some((p) => p !== '/api/v1/me') || polling.state.error) throw new Error('asked for ' + asked + ' ' + polling.state.error);
		polling.close();`)
	s.Takes("Oliver", 2)
	b.await(`noted.filter((n) => n.startsWith('task verify')).length > 1`, e2e.Soon)
	line.Refuse(true)
	line.Cut()
	b.await(`client.state.name === 'polling' && noted.filter((n) => n === 'reread').length >= 3`, e2e.Soon)
	b.eval(`(noted.length = 0, '')`)
	line.Refuse(false)
	b.await(`client.state.name === 'live' && noted.lastIndexOf('reread') >= 0`, e2e.Soon)
	b.eval(`(noted.length = 0, '')`)
	line.Cut() // a single loss is a node that restarts, and no reason to poll
	b.await(`noted.filter((n) => !n.startsWith('task')).join() === 'connecting,reread,live'`, e2e.Soon)
	inPage[any](b, `
		if (client.user.role !== 'observer') throw new Error('hello says ' + client.user.role);
		await rest().logOut();`)
	line.Refuse(true)
	line.Cut()
	b.await(`client.state.name === 'polling'`, e2e.Soon)
	line.Refuse(false)
	b.await(`client.state.reason === 'unauthenticated'`, e2e.Soon)
}

// A connection whose other end is gone is silent. The client notices, and replaces it. A connection on which nothing
// happens is kept, and nobody is told of the ping.
func TestPageClientNoticesASilentLine(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	line, err := proxy.Start(strings.TrimPrefix(s.Nodes[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	b := workbench(t, "http://"+line.Addr(), "Oliver", "worker")
	inPage[any](b, `
		window.sent = 0;
		const { send } = WebSocket.prototype;
		WebSocket.prototype.send = function (m) { sent++; send.call(this, m); };
		const often = { ping: 50, socket: [50, 100], poll: [100, 100, 100] };
		const quiet = connect({ delays: { ...often, silence: 60_000 } }); // a machine that stands still is not silent
		note(quiet, 'state', 'problem');
		await until(() => quiet.state.name === 'live');
		await until(() => sent > 10);
		if (noted.join() !== 'live') throw new Error('on a quiet line: ' + noted);
		quiet.close();
		window.client = connect({ delays: { ...often, silence: 1000 } });
		await until(() => client.state.name === 'live');`)
	line.Freeze(proxy.Both)
	b.await(`client.state.name === 'polling' || client.state.name === 'connecting'`, e2e.Soon)
	line.Thaw()
	b.await(`client.state.name === 'live'`, 2*e2e.Soon)
}

// When the network is back, or a user returns to the page, nobody waits for a timer. A client that has run out of
// patience goes on; a closed one stays closed.
func TestPageClientWakes(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	line, err := proxy.Start(strings.TrimPrefix(s.Nodes[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	s.Task("verify", `select 1 as item`)
	b := workbench(t, "http://"+line.Addr(), "Oliver", "worker")
	inPage[any](b, `
		const never = 3600e3;
		const silence = 60_000; // a machine that stands still is not silent
		window.client = connect({ delays: { silence, socket: [never, never], poll: [never, never, never] } });
		window.hasty = connect({ delays: { silence, socket: [never, never], poll: [10, 10, 10], stop: 50 } });
		window.ended = connect();
		await until(() => [client, hasty, ended].every((c) => c.state.name === 'live'));
		const asked = ended.getWork('verify', 1);
		ended.close();
		await asked;`)
	line.Refuse(true)
	line.Cut()
	b.await(`client.state.name === 'connecting'`, e2e.Soon)
	b.eval(`(hasty.resume(), '')`)
	b.await(`hasty.state.reason === 'patience'`, e2e.Soon)
	line.Refuse(false)
	for _, offline := range []bool{true, false} {
		b.network(func(ctx context.Context, tab *chromedp.Target) error {
			_, err := cdp.Call(ctx, tab, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1})
			return err
		})
	}
	b.await(`client.state.name === 'live' && hasty.state.name === 'live'`, e2e.Soon)
	if state := b.eval(`ended.state.reason`); state != "closed" {
		t.Errorf("a client that was closed is %s", state)
	}
}

// A machine that sleeps does not poll, so its patience is not used up when it wakes.
func TestPageClientSleeps(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	address, _ := withoutSockets(t, s.Nodes[0])
	b := workbench(t, address, "Oliver", "worker")
	inPage[any](b, `
		let asleep = 0;
		const clock = { now: () => Date.now() + asleep, setTimeout: (...of) => setTimeout(...of), clearTimeout: (id) => clearTimeout(id) };
		const client = connect({ clock, delays: { poll: [50, 50, 50], socket: [50, 100] } });
		note(client, 'state');
		await until(() => client.state.name === 'polling' && noted.length > 2);
		asleep = 12 * 3600e3;
		noted.length = 0;
		await until(() => noted.length > 5);
		if (client.state.name !== 'polling') throw new Error('after twelve hours of sleep it is ' + client.state.name);
		client.close();`)
}

// Answers come late, after events that were pushed meanwhile: requests that have ended stay ended and are reported
// once, and a client's own actions are no news.
func TestPageClientLateAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	open := gated(s)
	b := workbench(t, s.Nodes[0].URL, "Oliver", "worker")
	inPage[any](b, `
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
		return column[int](s, `select count(*)::int from getwork.work_requested where state = 'pending'`)[0] == 1
	})
	open()
	b.await(`client.work.size === 2`, e2e.Soon)
	inPage[any](b, `
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
	if got, want := inPage[[]string](b, `return noted.filter((n) => n !== 'request verify pending')`), []string{"request verify assigned", "gone 2 completed"}; !cmp.Equal(got, want) {
		t.Errorf("it told %q, want %q", got, want)
	}
}

// A call that the server had no room for is repeated when the server said, at most twice. A call that may have had its
// effect is not.
func TestPageClientRetryAfter(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "", "--max-calls", "1")
	b := workbench(t, s.Nodes[0].URL, "Oliver", "worker")
	lock, err := s.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	inPage[any](b, `
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
	b.await(`tries.some((one) => one.status === 429)`, e2e.Soon)
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	inPage[any](b, `
		await answers;
		const refused = tries.find((one) => one.status === 429);
		const last = tries.at(-1);
		if (last.status !== 200 || last.at - refused.at < 900) throw new Error('made again too soon: ' + JSON.stringify(tries));
		for (const [status, want] of [[429, 3], [503, 1]]) {
			let made = 0;
			const clock = { setTimeout: (f, ms) => { if (ms !== 3000) throw new Error('waits ' + ms); f(); } };
			const api = rest({ clock, fetch: async () => (made++, new Response('', { status, headers: { 'Retry-After': '3' } })) });
			const problem = await api.me().then(() => null, (e) => e);
			if (made !== want || problem.status !== status || problem.retryAfter !== 3000) throw new Error(status + ': made ' + made + ' times, ' + problem);
		}`)
}

// The calls of a manager and an observer, on a real node.
func TestPageClientManages(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	b := workbench(t, s.Nodes[0].URL, "Mary", "manager")
	inPage[any](b, `
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
		same((await api.reassign(click.work[0].id, 'Oliver')).user, 'Oliver');
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

// In the page only lit-html turns text into markup or scripts, whoever tries.
func TestPagePolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	b := newBrowser(t, "")
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	b.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	for _, try := range []string{
		`document.body.innerHTML = '<b>x</b>'`,
		`document.createElement('script').src = 'https://elsewhere.example/x.js'`,
		`document.createElement('script').text = 'x'`,
		`new DOMParser().parseFromString('<b>x</b>', 'text/html')`,
		`trustedTypes.createPolicy('other', {})`,
	} {
		if done := b.eval(`(() => { try { ` + try + `; return 'done'; } catch (e) { return e.name; } })()`); done != "TypeError" {
			t.Errorf("%s: %s", try, done)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = nil // the violations of the attempts
}

// fromClientDoc returns the programs in docs/client.md, by file name.
func fromClientDoc(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../../../../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	for _, block := range regexp.MustCompile("(?s)```js\n(// ([a-z]+\\.m?js).*?)```").FindAllStringSubmatch(string(doc), -1) {
		programs[block[2]] = block[1]
	}
	return programs
}

// ownPage is a user's own server, which forwards the API to a node, and serves the programs of docs/client.md.
// /own/NAME is a page with one of them.
func ownPage(t *testing.T, n *cluster.Node) (address string) {
	t.Helper()
	target, err := url.Parse(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	programs := fromClientDoc(t)
	transport := &http.Transport{}
	node := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if own, found := strings.CutPrefix(name, "own/"); found {
			w.Header().Set("Content-Type", "text/html")
			_, _ = fmt.Fprintf(w, `<!doctype html><ul id=work></ul><p id=status></p><p id=counts></p><button id=get>Get</button><script type=module src=/%s></script>`, own)
			return
		}
		if program := programs[name]; program != "" {
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = w.Write([]byte(program))
			return
		}
		node.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return server.URL
}

// The browser programs in docs/client.md do what the page says.
func TestClientDocInABrowser(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 9) i order by i`)
	s.Task("approve", `select 1 as item`)
	own := ownPage(t, s.Nodes[0])
	b := workbench(t, own, "Oliver", "worker")

	b.do(chromedp.Navigate(own + "/own/page.js"))
	b.await(`document.querySelector('#status').textContent === 'live'`, e2e.Soon)
	b.click("#get")
	b.await(`[...document.querySelectorAll('#work li')].map((li) => li.textContent).join() === '1,2'`, e2e.Soon)

	b.do(chromedp.Navigate(own + "/own/none.js"))
	b.eval(`(new Worker('/worker.js', { type: 'module' }).onmessage = (e) => { window.held = e.data; }, '')`)
	b.await(`window.held?.length === 2`, e2e.Soon)
	inPage[any](b, `await rest().getWork('verify', { count: 4 }, { Prefer: 'wait=20' });`)
	b.await(`window.held.length === 6`, e2e.Soon)

	states := func() string {
		return strings.Join(column[string](s, `select state::text from getwork.work order by item::int`), " ")
	}
	inPage[any](b, `
		const { disposeLater } = await import('/undo.js');
		window.client = connect({ fetch: (path, init) => {
			if (init.keepalive) sessionStorage.kept = Number(sessionStorage.kept ?? 0) + 1;
			return fetch(path, init);
		} });
		await until(() => client.work.size === 6);
		const [one, two, three] = [...client.work.values()];
		disposeLater(client, one.id, { outcome: 'complete' }, { after: 50 });
		const { undo } = disposeLater(client, two.id, { outcome: 'complete' }, { after: 100 });
		undo();
		await until(() => client.work.size === 5);
		disposeLater(client, three.id, { outcome: 'never', note: 'as the page is left' }, { after: 3600e3 });
		disposeLater(client, [...client.work.values()][2].id, { outcome: 'return', after: '4h' }, { after: 3600e3 }).undo();`)
	if got := states(); got != "completed held held held held held" {
		t.Errorf("before the page is left, work is %s", got)
	}
	b.do(chromedp.Navigate("about:blank"))
	e2e.Await(t, "what was held back is sent as the page is left", e2e.Soon, func() bool { return states() == "completed held never held held held" })

	b.do(chromedp.Navigate(own + "/livez"))
	if kept := b.eval(`sessionStorage.kept`); kept != "1" { // the browser may have sent another in time, too
		t.Errorf("%s calls were to outlive the page, want 1", kept)
	}
	inPage[any](b, `await rest().logIn('Olga', 'observer')`)
	b.do(chromedp.Navigate(own + "/own/watch.js"))
	b.await(`document.querySelector('#counts').dataset.verify === '0 waiting'`, e2e.Soon)
	if err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "other", "query": nil}); err != nil {
		t.Fatal(err)
	}
	mary := s.As("mary", 0)
	mary.Role = "manager"
	if a, err := mary.Do(t.Context(), "PATCH", "/api/v1/tasks/approve", map[string]any{"query": "select 1 as item where false"}, "If-Match", `"1"`); err != nil || a.Status != 200 {
		t.Fatalf("change the task: %d %v", a.Status, err)
	}
	if _, _, err := s.As("Tracy", 0).Linger(t.Context(), "approve", 1, "1h"); err != nil {
		t.Fatal(err)
	}
	b.await(`document.querySelector('#counts').dataset.approve === '1 waiting'`, e2e.Soon)
}

// nodeFlags are flags for what later versions of Node have by default. Before version 20 there is no WebSocket, and the
// client polls.
func nodeFlags(t *testing.T, node string) []string {
	t.Helper()
	version, err := exec.Command(node, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var major int
	if _, err := fmt.Sscanf(string(version), "v%d.", &major); err != nil {
		t.Fatalf("node %s: %v", version, err)
	}
	switch {
	case major < 20:
		return []string{"--experimental-global-customevent"}
	case major < 22:
		return []string{"--experimental-websocket"}
	}
	return nil
}

// The Node program in docs/client.md does all jobs, waits for more, and ends when it is told to.
func TestClientDocInNode(t *testing.T) {
	t.Parallel()
	node := installed(t, "node", "nodejs")
	s := newSite(t, 1, "")
	if err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "archive", "query": nil}); err != nil {
		t.Fatal(err)
	}
	agent := s.As("mary", 0)
	agent.Role = "agent"
	push := func(keys ...string) {
		t.Helper()
		items := []map[string]string{}
		for _, key := range keys {
			items = append(items, map[string]string{"item": key})
		}
		if a, err := agent.Do(t.Context(), "POST", "/api/v1/tasks/archive/items", items); err != nil || a.Status != 200 {
			t.Fatalf("push: %d %s %v", a.Status, a.Body, err)
		}
	}
	push("a", "b")
	dir := t.TempDir()
	module, err := os.ReadFile("../../../../web/static/getwork.js")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"work.mjs": fromClientDoc(t)["work.mjs"], "getwork.mjs": string(module)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), node, append(nodeFlags(t, node), filepath.Join(dir, "work.mjs"), s.Nodes[0].URL, "archive")...)
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	completed := func(want int) func() bool {
		return func() bool {
			return column[int](s, `select count(*)::int from getwork.work where state = 'completed' and user_name = 'archive'`)[0] == want
		}
	}
	e2e.Await(t, "what there was is done", e2e.Soon, completed(2))
	e2e.Await(t, "it waits for more", e2e.Soon, func() bool {
		return column[int](s, `select count(*)::int from getwork.work_requested where state = 'pending'`)[0] == 1
	})
	push("c")
	e2e.Await(t, "what came is done", 3*e2e.Soon, completed(3))
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(e2e.Soon):
		_ = c.Process.Kill()
		t.Errorf("it did not end: %v", <-ended)
	}
}
