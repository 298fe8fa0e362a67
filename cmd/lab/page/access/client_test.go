package access

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/proxy"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// An observer hears of tasks, and never reads a pipeline, which is not allowed, either by push or by polling. When
// push is gone, the observer is asked to read again with each poll, and once more when it is back.
func TestPageClientWatches(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 5) i`)
	line, err := proxy.Start(strings.TrimPrefix(s.Nodes[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	b := page.Workbench(t, "http://"+line.Addr(), "Olga", "observer")
	page.InPage[any](b, `
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
	b.Await(`noted.filter((n) => n.startsWith('task verify')).length > 1`, e2e.Soon)
	line.Refuse(true)
	line.Cut()
	b.Await(`client.state.name === 'polling' && noted.filter((n) => n === 'reread').length >= 3`, e2e.Soon)
	b.Eval(`(noted.length = 0, '')`)
	line.Refuse(false)
	b.Await(`client.state.name === 'live' && noted.lastIndexOf('reread') >= 0`, e2e.Soon)
	b.Eval(`(noted.length = 0, '')`)
	line.Cut() // a single loss is a node that restarts, and no reason to poll
	b.Await(`noted.filter((n) => !n.startsWith('task')).join() === 'connecting,reread,live'`, e2e.Soon)
	page.InPage[any](b, `
		if (client.user.role !== 'observer') throw new Error('hello says ' + client.user.role);
		await rest().logOut();`)
	line.Refuse(true)
	line.Cut()
	b.Await(`client.state.name === 'polling'`, e2e.Soon)
	line.Refuse(false)
	b.Await(`client.state.reason === 'unauthenticated'`, e2e.Soon)
}

// A connection whose other end is gone is silent. The client notices, and replaces it. A connection on which nothing
// happens is kept, and nobody hears of the ping.
func TestPageClientNoticesASilentLine(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	line, err := proxy.Start(strings.TrimPrefix(s.Nodes[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	b := page.Workbench(t, "http://"+line.Addr(), "Oliver", "worker")
	page.InPage[any](b, `
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
	b.Await(`client.state.name === 'polling' || client.state.name === 'connecting'`, e2e.Soon)
	line.Thaw()
	b.Await(`client.state.name === 'live'`, 2*e2e.Soon)
}

// When the network is back, or a user returns to the page, nobody waits for a timer. A client that has run out of
// patience goes on; a closed one stays closed.
func TestPageClientWakes(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	line, err := proxy.Start(strings.TrimPrefix(s.Nodes[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	s.Task("verify", `select 1 as item`)
	b := page.Workbench(t, "http://"+line.Addr(), "Oliver", "worker")
	page.InPage[any](b, `
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
	b.Await(`client.state.name === 'connecting'`, e2e.Soon)
	b.Eval(`(hasty.resume(), '')`)
	b.Await(`hasty.state.reason === 'patience'`, e2e.Soon)
	line.Refuse(false)
	for _, offline := range []bool{true, false} {
		b.Do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			_, err := cdp.Call(ctx, tab, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1})
			return err
		}))
	}
	b.Await(`client.state.name === 'live' && hasty.state.name === 'live'`, e2e.Soon)
	if state := b.Eval(`ended.state.reason`); state != "closed" {
		t.Errorf("a client that was closed is %s", state)
	}
}

// A machine that sleeps does not poll, so its patience is not used up when it wakes.
func TestPageClientSleeps(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	address, _ := page.WithoutSockets(t, s.Nodes[0])
	b := page.Workbench(t, address, "Oliver", "worker")
	page.InPage[any](b, `
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

// The client reports a change of the list of tasks when the server does, and when it goes live, since what was read
// before may be old. If it has polled until then, everything on the page may be old.
func TestPageClientTellsOfTasks(t *testing.T) {
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	b := page.Workbench(t, s.Nodes[0].URL, "Oliver", "worker")
	got := page.InPage[[]string](b, `
		const sockets = [];
		class Socket {
			constructor() { sockets.push(this); }
			close() {}
			say(type, body) { this.onmessage({ data: JSON.stringify({ type, [type]: body }) }); }
		}
		const greet = () => {
			sockets.at(-1).say('hello', { user: 'Oliver', server_time: new Date().toISOString() });
			sockets.at(-1).say('snapshot', { work: [], requests: [] });
		};
		const lines = [];
		const made = () => {
			const client = connect({ WebSocket: Socket, fetch: () => new Promise(() => {}), clock: { now: () => 0, setTimeout() {}, clearTimeout() {} } });
			for (const type of ['tasks', 'reread']) client.addEventListener(type, () => lines.push(type));
			return client;
		};
		const first = made();
		greet();
		lines.push('told');
		sockets.at(-1).say('tasks', {});
		lines.push('of a later kind');
		sockets.at(-1).say('novelty', {});
		lines.push('once more');
		sockets.at(-1).say('snapshot', { work: [], requests: [] });
		first.close();
		lines.push('polling');
		const second = made();
		sockets.at(-1).onclose({ code: 1006 });
		second.resume();
		lines.push('then live');
		greet();
		second.close();
		return lines;
	`)
	want := []string{"tasks", "told", "tasks", "of a later kind", "once more", "reread", "polling", "reread", "then live", "reread"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The client follows many tasks by few messages. If one of a message's tasks is missing, the caller hears of it once, and the client
// follows the others; if the server says that in words that the client does not know, it asks one by one, and only once.
func TestPageClientFollowsManyTasks(t *testing.T) {
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	b := page.Workbench(t, s.Nodes[0].URL, "Oliver", "worker")
	page.InPage[any](b, `
		const sent = [], problems = [], followed = new Set();
		let socket;
		class Socket {
			constructor() { socket = this; }
			close() { this.closed = true; }
			send(text) { sent.push(JSON.parse(text)); }
			say(type, body) { this.onmessage({ data: JSON.stringify({ type, [type]: body }) }); }
			refuse(detail) { this.say('error', { type: '/problems/not-found', title: 'Not found', status: 404, detail }); }
		}
		const obey = () => {
			for (const { type, tasks } of sent) { // more may come meanwhile
				if (tasks.length > 50) throw new Error('one message has ' + tasks.length + ' tasks');
				const missing = tasks.find((name) => name.startsWith('missing'));
				if (type === 'subscribe' && missing) socket.refuse('no task "' + missing + '" to subscribe to');
				else for (const name of tasks) followed[type === 'subscribe' ? 'add' : 'delete'](name);
			}
			return sent.splice(0).length;
		};
		const check = (what, got, want) => { if (got !== want) throw new Error(what + ': ' + got + ', want ' + want); };
		const client = connect({ WebSocket: Socket, fetch: () => new Promise(() => {}), clock: { now: () => 0, setTimeout() {}, clearTimeout() {} } });
		client.addEventListener('problem', (e) => problems.push(e.detail.detail));
		const names = Array.from({ length: 120 }, (_, i) => 'task-' + i);
		names.splice(30, 0, 'missing-1', 'missing-2');
		client.subscribe(names);
		check('sent before the socket is open', sent.length, 0);
		socket.readyState = 1;
		socket.say('hello', { user: 'Oliver', server_time: new Date().toISOString() });
		check('messages', obey(), 9);
		check('followed', followed.size, 120);
		check('problems', problems.join(), 'no task "missing-1" to subscribe to,no task "missing-2" to subscribe to');
		client.subscribe(names);
		check('messages for what is followed', sent.length, 0);
		client.unsubscribe(names);
		check('messages to unsubscribe', obey(), 3);
		check('followed in the end', followed.size, 0);
		client.close();

		const second = connect({ WebSocket: Socket, fetch: () => new Promise(() => {}), clock: { now: () => 0, setTimeout() {}, clearTimeout() {} } });
		socket.readyState = 1;
		second.subscribe(['a', 'b', 'c', 'd']);
		second.unsubscribe(['c']);
		sent.length = 0;
		socket.refuse('no task "c" to subscribe to'); // which nobody wants any more, but it cost the others, too
		check('the others', sent.map((m) => m.tasks.join('+')).join(), 'a+b+d');
		sent.length = 0;
		socket.refuse('no task "c" to subscribe to');
		check('sent again', sent.length, 0);

		second.subscribe(['e', 'f']);
		second.unsubscribe(['e']);
		second.subscribe(['e', 'g']); // e was deleted meanwhile
		sent.length = 0;
		socket.refuse('no task "e" to subscribe to');
		check('all but the missing one', sent.map((m) => m.tasks.join('+')).join(), 'a+b+d+f+g');
		const former = socket;
		socket.say('error', { type: '/problems/unavailable', title: 'Unavailable', status: 503, detail: 'try again' });
		check('the socket after a subscription that was not carried out', former.closed, true);
		second.close();`)
}
