package page

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

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

// InPage runs a script in the page, and returns its result, decoded from JSON.
func InPage[T any](b *Browser, script string) (v T) {
	b.T.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`(async () => {`+scripts+script+`})().then((v) => JSON.stringify(v ?? null), (e) => JSON.stringify({ failed: e.stack }))`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.T.Fatal(err)
	}
	if strings.HasPrefix(text, `{"failed":`) {
		b.T.Fatal(text)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		b.T.Fatalf("%s: %v", text, err)
	}
	return v
}

// Workbench opens a page of a node where nobody is logged in, so that scripts have the connection for themselves.
func Workbench(t *testing.T, url, user, role string) *Browser {
	t.Helper()
	b := NewBrowser(t, "")
	b.Do(chromedp.Navigate(url + "/livez"))
	InPage[any](b, fmt.Sprintf(`await rest().logIn(%q, %q)`, user, role))
	return b
}

// An observer is told of tasks, and never reads a pipeline, which is not allowed, either by push or by polling. When
// push is gone, the observer is told to read again with each poll, and once more when it is back.
func TestPageClientWatches(t *testing.T) {
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 5) i`)
	line, err := proxy.Start(strings.TrimPrefix(s.Nodes[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	b := Workbench(t, "http://"+line.Addr(), "Olga", "observer")
	InPage[any](b, `
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
	InPage[any](b, `
		if (client.user.role !== 'observer') throw new Error('hello says ' + client.user.role);
		await rest().logOut();`)
	line.Refuse(true)
	line.Cut()
	b.Await(`client.state.name === 'polling'`, e2e.Soon)
	line.Refuse(false)
	b.Await(`client.state.reason === 'unauthenticated'`, e2e.Soon)
}

// A connection whose other end is gone is silent. The client notices, and replaces it. A connection on which nothing
// happens is kept, and nobody is told of the ping.
func TestPageClientNoticesASilentLine(t *testing.T) {
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	line, err := proxy.Start(strings.TrimPrefix(s.Nodes[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	b := Workbench(t, "http://"+line.Addr(), "Oliver", "worker")
	InPage[any](b, `
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
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	line, err := proxy.Start(strings.TrimPrefix(s.Nodes[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	s.Task("verify", `select 1 as item`)
	b := Workbench(t, "http://"+line.Addr(), "Oliver", "worker")
	InPage[any](b, `
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
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	address, _ := WithoutSockets(t, s.Nodes[0])
	b := Workbench(t, address, "Oliver", "worker")
	InPage[any](b, `
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
