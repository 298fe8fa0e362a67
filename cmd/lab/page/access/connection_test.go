package access

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// clientScript runs static/getwork.js with a fake clock, network and sockets, and returns its actions with their times,
// in seconds.
const clientScript = `(async () => {
	const { connect } = await import('/static/getwork.js');
	let now = 0, serial = 0;
	const timers = new Map(), sockets = [], lines = [];
	const clock = {
		now: () => now,
		setTimeout: (f, ms) => (timers.set(++serial, { at: now + ms, f }), serial),
		clearTimeout: (id) => timers.delete(id),
	};
	const pass = async (seconds) => {
		const end = now + 1000 * seconds;
		for (;;) {
			for (let i = 0; i < 100; i++) await null; // calls are answered first
			const [id, next] = [...timers].filter(([, t]) => t.at <= end).sort((a, b) => a[1].at - b[1].at)[0] ?? [];
			if (!next) break;
			timers.delete(id);
			now = next.at;
			next.f();
		}
		now = end;
	};
	const note = (what) => lines.push(now / 1000 + ' ' + what);
	class Socket {
		constructor(url, protocol) {
			note('socket ' + url.pathname + ' ' + protocol);
			sockets.push(this);
		}
		close() {}
		say(type, body) { this.onmessage({ data: JSON.stringify({ type, [type]: body }) }); }
	}
	const fetch = async (path) => {
		note(path);
		return { status: 200, ok: true, headers: new Headers({ 'Content-Type': 'application/json' }), text: async () => '{"work":[],"requests":[]}' };
	};
	const client = connect({ WebSocket: Socket, clock, fetch, random: () => 1 });
	client.addEventListener('state', (e) => note(e.detail.name + (e.detail.every ? ' ' + e.detail.every / 1000 : '') + (e.detail.reason ? ' ' + e.detail.reason : '')));
	const greet = () => {
		sockets.at(-1).say('hello', { user: 'oliver', server_time: new Date(now).toISOString() });
		sockets.at(-1).say('snapshot', { work: [], requests: [] });
	};
	greet();
	sockets.at(-1).say('node', { state: 'lagging' });
	sockets.at(-1).say('node', { state: 'live' });
	await pass(60);
	sockets.at(-1).onclose({ code: 1001 });
	await pass(0.5);
	sockets.at(-1).onclose({ code: 1006 });
	await pass(16 * 60);
	const polled = lines.splice(0);
	await pass(24 * 3600);
	const idle = lines.splice(0);
	client.resume();
	greet();
	sockets.at(-1).onclose({ code: 1009 });
	await pass(60);
	return JSON.stringify([polled, idle, lines]);
})()`

// The module's whole behaviour on a connection that comes and goes, on the fake clock.
func TestPageClient(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	text, err := page.Run(b, chromedp.Evaluate[string](clientScript, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	var chapters [3][]string
	if err := json.Unmarshal([]byte(text), &chapters); err != nil {
		t.Fatal(err)
	}
	polled, idle, fault := chapters[0], chapters[1], chapters[2]
	want := []string{
		"0 socket /api/v1/ws getwork.v1", "0 live", "0 lagging", "0 live",
		"60 connecting", "60.5 socket /api/v1/ws getwork.v1", // once is a node that restarts
		"60.5 polling 5", "60.5 /api/v1/pipeline", "60.5 polling 5", "61.5 socket /api/v1/ws getwork.v1",
		"65.5 /api/v1/pipeline", "65.5 polling 10", "68.5 socket /api/v1/ws getwork.v1",
		"75.5 /api/v1/pipeline", "75.5 polling 20", "77.5 socket /api/v1/ws getwork.v1",
		"90.5 socket /api/v1/ws getwork.v1", "95.5 /api/v1/pipeline", "95.5 polling 20",
	}
	if diff := cmp.Diff(want, polled[:min(len(want), len(polled))]); diff != "" {
		t.Errorf("a lost connection (-want +got):\n%s", diff)
	}
	if last := polled[len(polled)-1]; last != "975.5 stopped patience" {
		t.Errorf("at last: %s", last)
	}
	if len(idle) > 0 {
		t.Errorf("after the client stopped: %v", idle)
	}
	want = []string{
		"87420.5 connecting", "87420.5 socket /api/v1/ws getwork.v1", "87420.5 live", "87420.5 polling 5", "87420.5 /api/v1/pipeline",
		"87420.5 polling 5", "87425.5 /api/v1/pipeline", "87425.5 polling 10", "87435.5 /api/v1/pipeline", "87435.5 polling 20",
		"87455.5 /api/v1/pipeline", "87455.5 polling 20", "87475.5 /api/v1/pipeline", "87475.5 polling 20",
	}
	if diff := cmp.Diff(want, fault); diff != "" {
		t.Errorf("a socket that was closed for a fault of ours (-want +got):\n%s", diff)
	}
}
