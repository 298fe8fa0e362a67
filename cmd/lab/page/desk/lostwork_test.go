package desk

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// Work whose lease has ended says so, and the typed text is there again when the item is: claimed once others are done
// with it.
func TestPageLostLease(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	const item = "<i>1/2</i>"
	page.Leased(s, "1h", item)
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	s.Takes("Oliver", 1)
	b.Works(1, e2e.Soon)
	b.TypeNote("half read")
	s.Exec(`update getwork.work set lease_expires_at = clock_timestamp() + interval '1 s'`) // not while typing
	b.Shows(".why", "It went back at ")
	b.Shows(".why", "Your note is kept.")
	b.Shows("#work .key", item)
	other := s.Takes("Tracy", 1)[0]
	b.Press(".again")
	b.Shows(".error", "It can’t be claimed: somebody else holds")
	if _, a, err := s.As("Tracy", 0).Dispose(t.Context(), other.ID, "return", "0s"); err != nil || a.Status != 200 {
		t.Fatalf("return: %d %s %v", a.Status, a.Body, err)
	}
	b.Press(".again")
	b.Shows("#told", item+": yours again.")
	b.Await(`document.querySelector('#work .done') && !document.querySelector('#work .again')`, e2e.Soon)
	b.Shows("#work .which", "attempt 2")
	b.Press("#work .complete")
	b.Works(0, e2e.Soon)
	if closed := e2e.Column[string](s, `select state || ' ' || coalesce(note, '') from getwork.work order by id`); fmt.Sprint(closed) != "[expired  returned  completed half read]" {
		t.Errorf("work: %q", closed)
	}
}

// Work that a manager takes away leaves with a message, unless something is typed in it; work that a manager gives, or
// that is claimed in another tab, appears by itself.
func TestPageTakenAway(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "10m", "a", "b", "c", "d", "e")
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	held := s.Takes("Oliver", 3)
	b.Works(3, e2e.Soon)
	b.TypeNote("mine")
	reassign := func(w assign.Work, to string) {
		t.Helper()
		page.Manages(s, "POST", fmt.Sprintf("/work/%d/reassign", w.ID), map[string]any{"user": to, "force": true})
	}
	reassign(held[1], "Tracy")
	b.Works(2, e2e.Soon)
	b.Shows("#told", "b: It was given to somebody else at ")
	reassign(held[0], "Tracy")
	b.Shows(".why", "It was given to somebody else at ")
	b.Shows(".why", "Your note is kept.")
	if shown := b.Eval(`document.querySelector('.sheet textarea').value + !!document.querySelector('.again')`); shown != "minefalse" {
		t.Errorf("the note, and whether it can be claimed: %s", shown)
	}
	reassign(s.Takes("Tracy", 1)[0], "Oliver")
	b.Shows("#work .key", "d")
	if a, err := s.As("Oliver", 0).Do(t.Context(), http.MethodPost, "/api/v1/tasks/verify/items/e/claim", nil); err != nil || a.Status != 201 {
		t.Fatalf("claim: %d %s %v", a.Status, a.Body, err)
	}
	b.Shows("#work .key", "e")
	b.Await(`document.querySelector('#held').textContent === '3'`, e2e.Soon)
	b.Notes("#told") // messages within a second stand together, and then go
	token := page.Manages(s, "POST", "/work/release", map[string]any{"user": "Oliver", "dry_run": true}).Token
	page.Manages(s, "POST", "/work/release", map[string]any{"user": "Oliver", "token": token})
	b.Works(1, e2e.Soon)
	for _, item := range []string{"c", "d", "e"} {
		b.Showed(item + ": It was returned at ")
	}
	b.Showed("by a manager")
}

// goneScript runs static/getwork.js with fake sockets and answers, and returns what it reported about work that is
// gone.
const goneScript = `(async () => {
	const { connect } = await import('/static/getwork.js');
	const lines = [], answers = [];
	let socket;
	class Socket {
		constructor() { socket = this; }
		close() {}
		say(type, body) { this.onmessage({ data: JSON.stringify({ type, [type]: body }) }); }
	}
	const fetch = (path) => new Promise((answer) => answers.push((status, body) => answer(new Response(JSON.stringify(body), {
		status, headers: { 'Content-Type': 'application/json' },
	}))));
	const settle = (promise) => promise.then((w) => lines.push(w.id + ' is ' + w.state), (e) => lines.push(e.type));
	const work = (id, state = 'held') => ({ id, state, task: 'verify', item: id, lease_expires_at: '2026-01-01T00:00:00Z' });
	const client = connect({ WebSocket: Socket, fetch, clock: { now: () => 0, setTimeout: () => 0, clearTimeout: () => {} } });
	client.addEventListener('gone', (e) => lines.push('gone ' + e.detail.id + ' ' + e.detail.state));
	socket.say('hello', { user: 'oliver', server_time: '2025-12-31T23:59:48Z' });
	socket.say('snapshot', { work: ['1', '2', '3', '4', '5'].map((id) => work(id)), requests: [] });
	lines.push('left ' + client.left(client.work.get('1')) + ' ' + client.left({ lease_expires_at: null }));
	// The event overtakes the answer; it is our own action all the same.
	let done = settle(client.dispose('1', { outcome: 'complete' }));
	socket.say('work', work('1', 'completed'));
	answers.shift()(200, work('1', 'completed'));
	await done;
	// A snapshot overtakes it.
	done = settle(client.dispose('2', { outcome: 'return', after: '0s' }));
	socket.say('snapshot', { work: ['3', '4', '5'].map((id) => work(id)), requests: [] });
	answers.shift()(200, work('2', 'returned'));
	await done;
	// The lease ended at that moment.
	done = settle(client.dispose('3', { outcome: 'complete' }));
	socket.say('work', work('3', 'expired'));
	answers.shift()(409, { type: '/problems/lease-lost' });
	await done;
	// The lease ended, but the work was not swept: reading the pipeline then still finds it.
	done = settle(client.extend('4'));
	answers.shift()(409, { type: '/problems/lease-lost' });
	await done;
	socket.say('snapshot', { work: ['4', '5'].map((id) => work(id)), requests: [] });
	socket.say('work', work('4', 'expired'));
	// Nobody says why.
	socket.say('snapshot', { work: [], requests: [] });
	done = settle(client.claim('verify', '6'));
	answers.shift()(201, work('6'));
	await done;
	return JSON.stringify([lines, [...client.work.keys()]]);
})()`

// lateScript runs static/getwork.js with fake sockets and answers, gives it snapshots that are older than answers to its calls, and
// returns what it asked and reported.
const lateScript = `(async () => {
	const { connect } = await import('/static/getwork.js');
	const lines = [], answers = [];
	let socket;
	class Socket {
		constructor() { socket = this; }
		close() {}
		say(type, body) { this.onmessage({ data: JSON.stringify({ type, [type]: body }) }); }
	}
	const fetch = (path, { method }) => new Promise((answer) => {
		lines.push(method + ' ' + path.replace('/api/v1', ''));
		answers.push((status, body) => answer({
			status, ok: status < 400, headers: new Headers({ 'Content-Type': 'application/json' }), text: async () => JSON.stringify(body),
		}));
	});
	const answered = async (status, body) => {
		answers.shift()?.(status, body);
		for (let i = 0; i < 100; i++) await null; // what follows from the answer comes first
	};
	const work = (id, state = 'held') => ({ id, state, task: 'verify', item: id });
	const request = (id, state, ...work) => ({ id, task: 'verify', state, work });
	const client = connect({ WebSocket: Socket, fetch, clock: { now: () => 0, setTimeout: () => 0, clearTimeout: () => {} } });
	client.addEventListener('gone', (e) => lines.push('gone ' + e.detail.id + ' ' + e.detail.state));
	client.addEventListener('request', (e) => lines.push('request ' + e.detail.id + ' ' + e.detail.state));
	const older = (...held) => socket.say('snapshot', { work: held.map((id) => work(id)), requests: [] });
	const holds = () => lines.push('holds ' + [...client.work.keys()] + ', waits ' + [...client.requests.keys()]);
	older();
	client.getWork('verify', 2);
	await answered(201, request('1', 'assigned', work('1'), work('2')));
	client.getWork('approve', 1);
	await answered(202, request('2', 'pending'));
	client.claim('verify', '3');
	await answered(201, work('3'));
	// It was read before the clicks. The server is asked, and 2 was closed in another tab.
	older();
	holds();
	for (const body of [work('1'), work('2', 'completed'), work('3'), request('2', 'pending')]) await answered(200, body);
	holds();
	// Once push has sent work, a snapshot without it is newer.
	socket.say('request', request('1', 'assigned', work('1')));
	older('3');
	await answered(404, {}); // as after a restore
	older();
	holds();
	return lines.join('\n');
})()`

// A snapshot may be older than the answer to a call. What it lacks therefore is neither gone nor ended: the server is asked.
func TestPageClientSnapshotFromBeforeAClick(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	told, err := page.Run(b, chromedp.Evaluate[string](lateScript, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"POST /tasks/verify/requests", "request 1 assigned", "POST /tasks/approve/requests", "request 2 pending", "POST /tasks/verify/items/3/claim",
		"GET /work/1", "GET /work/2", "GET /work/3", "GET /requests/2", "holds 1,2,3, waits 2",
		"gone 2 completed", "request 2 pending", "holds 1,3, waits 2",
		"gone 1 held", "GET /requests/2", "request 2 lost", "gone 3 held", "holds , waits ",
	}
	if diff := cmp.Diff(want, strings.Split(told, "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Work that the client lets go of is not reported as gone, in whatever order events and answers come; all other work
// is, once.
func TestPageClientTellsWhatIsGone(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	told, err := page.Run(b, chromedp.Evaluate[string](goneScript, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	const want = `[["left 12000 null","1 is completed","2 is returned","gone 3 expired","/problems/lease-lost",` +
		`"gone 4 held","/problems/lease-lost","gone 5 held","6 is held"],["6"]]`
	if told != want {
		t.Errorf("told %s\nwant %s", told, want)
	}
}
