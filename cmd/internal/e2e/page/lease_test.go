package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
)

// leased creates a task that hands out the items, best first, and takes them back when the lease is over.
func leased(s *site, lease string, items ...string) {
	s.T.Helper()
	err := s.As("mary", 0).CreateTask(s.T.Context(), map[string]any{"name": "verify", "lease": lease, "query": `
		select item from unnest(array['` + strings.Join(items, "','") + `']) with ordinality as u (item, n) order by n`})
	if err != nil {
		s.T.Fatal(err)
	}
}

// manages makes a call as a manager.
func (s *site) manages(method, path string, body any) (answered struct{ Token string }) {
	s.T.Helper()
	mary := s.As("mary", 0)
	mary.Role = "manager"
	a, err := mary.Do(s.T.Context(), method, "/api/v1"+path, body)
	if err == nil {
		err = a.Decode(&answered)
	}
	if err != nil {
		s.T.Fatal(method, path, err)
	}
	return answered
}

// typeNote types into the first card's note.
func (b *browser) typeNote(text string) {
	b.t.Helper()
	b.click("#work li:first-child summary")
	b.await(`(() => {
		const item = document.querySelector('#work li:first-child');
		const details = item?.querySelector('details');
		if (details && !details.open) details.open = true; // a restored draft opened it before the click
		const note = item?.querySelector('textarea');
		note?.focus();
		return !!note && document.activeElement === note;
	})()`, e2e.Soon)
	b.do(chromedp.KeyEvent(text))
}

// press clicks a button without a pointer, so that the page does not take it for a sign of presence.
func (b *browser) press(selector string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`document.querySelector(%q)?.checkVisibility() && !document.querySelector(%[1]q).disabled`, selector), e2e.Soon)
	b.eval(fmt.Sprintf(`(document.querySelector(%q).click(), '')`, selector))
}

// shows waits until an element's text contains the given part.
func (b *browser) shows(selector, text string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.checkVisibility() && e.textContent.includes(%q))`, selector, text), e2e.Soon)
}

// moving moves the pointer about until so returns true.
func (b *browser) moving(what string, so func() bool) {
	b.t.Helper()
	n := 0
	e2e.Await(b.t, what, 4*e2e.Soon, func() bool {
		n++
		b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 300+float64(n%100), 10))
		return so()
	})
}

// anHourOff is a page script for a machine whose clock is wrong.
const anHourOff = `Date.now = ((now) => () => now() + 3600e3)(Date.now)`

// The remaining time is counted down by the server's clock, and a warning comes before the end. One click extends the
// lease, and so does presence at the page; absence does not.
func TestPageLease(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, anHourOff+";"+cuttable)
	s := newSite(t, 1, "")
	leased(s, "60s", "17", "18")
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	extended := func(n int) bool {
		return column[bool](s, `select lease_expires_at - assigned_at >= $1 * lease from getwork.work order by id desc limit 1`, n)[0]
	}
	s.Takes("Oliver", 1)
	b.await(`/^[3-5]\d s left$/.test(document.querySelector('#work .left')?.textContent)`, e2e.Soon)
	s.Exec(`update getwork.work set assigned_at = assigned_at - interval '40 s', lease_expires_at = lease_expires_at - interval '40 s'`)
	b.cutOff() // so that the page reads the later end
	b.await(`/^1?\d s left$/.test(document.querySelector('#work .left')?.textContent)`, e2e.Soon)
	b.shows(".lease.soon .warning", "goes back to the queue")
	if title := b.eval("document.title"); !strings.HasSuffix(title, "Oliver · getwork") {
		t.Errorf("the title is %q", title)
	}
	b.await(`document.title.startsWith('⏳')`, e2e.Soon)
	b.press(".keep")
	b.await(`document.querySelector('.lease:not(.soon)')`, e2e.Soon)
	if extended(2) {
		t.Error("it was extended by more than one lease")
	}
	b.press(".complete")
	b.works(0, e2e.Soon)
	s.changes("verify", map[string]any{"lease": "10s"}, 0) // a quarter of it is soon used up
	s.Takes("Oliver", 1)
	b.moving("it is kept over three leases", func() bool { return extended(3) })
	const extensions = `performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/extend')).length`
	if n, err := chromedp.Run(b.ctx, chromedp.Evaluate[int](extensions)); err != nil || n < 3 || n > 10 {
		t.Errorf("extended %d times in three leases (%v); at least a quarter of one lies between two", n, err)
	}
	b.eval(`(Object.defineProperty(document, 'hidden', { value: true }), '')`) // as if the tab were in the background
	b.moving("nobody is at it", func() bool {
		return column[bool](s, `select state = 'expired' from getwork.work order by id desc limit 1`)[0]
	})
	b.shows(".why", "It went back at ")
	b.await(`document.querySelector('#work .again').checkVisibility() && !document.querySelector('#work .done')`, e2e.Soon)
	b.press(".dismiss")
	b.works(0, e2e.Soon)
	b.shows("#empty", "You hold nothing.")
}

// Work whose lease has ended says so, and the typed text is there again when the item is: claimed once others are done
// with it.
func TestPageLostLease(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	const item = "<i>1/2</i>"
	leased(s, "1h", item)
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	s.Takes("Oliver", 1)
	b.works(1, e2e.Soon)
	b.typeNote("half read")
	s.Exec(`update getwork.work set lease_expires_at = clock_timestamp() + interval '1 s'`) // not while typing
	b.shows(".why", "It went back at ")
	b.shows(".why", "Your note is kept.")
	b.shows("#work h3", item)
	other := s.Takes("Tracy", 1)[0]
	b.press(".again")
	b.shows(".error", "It can’t be claimed: somebody else holds")
	if _, a, err := s.As("Tracy", 0).Dispose(t.Context(), other.ID, "return", "0s"); err != nil || a.Status != 200 {
		t.Fatalf("return: %d %s %v", a.Status, a.Body, err)
	}
	b.press(".again")
	b.shows("#told", item+": yours again.")
	b.await(`document.querySelector('#work .done') && !document.querySelector('#work .again')`, e2e.Soon)
	b.shows("#work .which", "attempt 2")
	b.press("#work .complete")
	b.works(0, e2e.Soon)
	if closed := column[string](s, `select state || ' ' || coalesce(note, '') from getwork.work order by id`); fmt.Sprint(closed) != "[expired  returned  completed half read]" {
		t.Errorf("work: %q", closed)
	}
}

// All of this also works without push.
func TestPageLeaseWithoutPush(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	leased(s, "15s", "17") // longer than loading the page may take
	address, _ := withoutSockets(t, s.Nodes[0])
	b.logIn(address, "Oliver")
	s.Takes("Oliver", 1)
	b.do(chromedp.Navigate(address))
	b.state("polling", e2e.Soon)
	b.shows(".lease .left", "s left")
	b.moving("it is kept over two leases", func() bool {
		return column[bool](s, `select lease_expires_at - assigned_at >= 2 * lease from getwork.work`)[0]
	})
	b.await(`document.querySelector('.why')?.textContent.includes('It went back at ')`, 3*e2e.Soon)
	b.press(".again")
	b.shows(".lease .left", "s left")
	b.works(1, e2e.Soon)
}

// A user returns an item to others and isn't offered it again; the page says why there is nothing for them, and names a
// limit.
func TestPageReturnsToOthers(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", `select 1 as item`)
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	b.click(".task form button")
	b.works(1, e2e.Soon)
	b.click("#work .others")
	b.click(`#work [data-return=exact]`)
	b.do(chromedp.SendKeys(chromedp.CSS("#work .exact input"), "73\r", chromedp.NodeVisible))
	b.shows("#work .error", "It can be returned for 0 to 72 hours")
	b.do(chromedp.SendKeys(chromedp.CSS("#work .exact input"), "\b\b0\r", chromedp.NodeVisible))
	b.shows("#work .became", "returned to others, not offered before ")
	b.works(0, e2e.Soon)
	b.shows("#recent", "returned to others, not offered before ")
	if closed := column[string](s, `select state || ' ' || to_others from getwork.work`); closed[0] != "returned true" {
		t.Errorf("work: %q", closed)
	}
	b.click(".task form button")
	b.shows(".task .ended", "There is work, but not for you")
	b.shows(".task .ended", "You left 1 to others.")
	if a, err := s.As("Tracy", 0).Do(t.Context(), http.MethodPost, "/api/v1/tasks/verify/items/1/claim", nil); err != nil || a.Status != 201 {
		t.Errorf("Tracy claims it: %d %s %v", a.Status, a.Body, err)
	}
	err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "jobs", "query": `select i as item from generate_series(1, 9) i`, "max_open": 1, "slots": 3})
	if err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	b.state("live", e2e.Soon)
	const click = `(document.querySelector('.task [aria-label="Get Work: jobs"]').click(), '')`
	b.await(`document.querySelector('.task [aria-label="Get Work: jobs"]')`, e2e.Soon)
	if n := b.eval(`String(document.querySelectorAll('[name="count-jobs"]').length)`); n != "1" {
		t.Errorf("%s numbers to choose from, of which one may hold 1", n)
	}
	b.eval(click)
	b.works(1, e2e.Soon)
	b.shows("#work .which", "place 1 of 3")
	b.eval(click)
	b.shows(".task .ended", "You hold 1 item of this task, and may hold no more.")
	b.eval(`(import('/static/words.js').then((words) => { window.words = words; }), '')`)
	b.await(`window.words`, e2e.Soon)
	for _, tt := range []struct{ request, limit, holds, want string }{
		{"{state:'partial',wanted:5,assigned:1,reason:'at_limit'}", "1", "1", "1 item now in your pipeline. You hold 1 item of this task, and may hold no more."},
		{"{state:'partial',wanted:5,assigned:2,reason:'rules'}", "null", "2", "2 items now in your pipeline; of the 5 that you asked for the task’s rules let you have no more."},
		{"{state:'partial',wanted:5,assigned:2,reason:null}", "null", "2", "2 items now in your pipeline; of the 5 that you asked for there were no more."},
		{"{state:'none',reason:'all_held'}", "null", "2", "All that matches is with you or others already, or put off. Ask again later, or wait until some is free."},
		{"{state:'none',reason:'all_held'}", "null", "0", "All that matches is with somebody already, or put off. Ask again later, or wait until some is free."},
	} {
		if got := b.eval(fmt.Sprintf("words.outcome(%s, %s, %s)", tt.request, tt.limit, tt.holds)); got != tt.want {
			t.Errorf("%s, of at most %s, holding %s: %q", tt.request, tt.limit, tt.holds, got)
		}
	}
}

// Work that a manager takes away leaves with a message, unless something is typed in it; work that a manager gives, or
// that is claimed in another tab, appears by itself.
func TestPageTakenAway(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	leased(s, "10m", "a", "b", "c", "d", "e")
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	held := s.Takes("Oliver", 3)
	b.works(3, e2e.Soon)
	b.typeNote("mine")
	reassign := func(w assign.Work, to string) {
		t.Helper()
		s.manages("POST", fmt.Sprintf("/work/%d/reassign", w.ID), map[string]any{"user": to})
	}
	reassign(held[1], "Tracy")
	b.works(2, e2e.Soon)
	b.shows("#told", "b: It was given to somebody else at ")
	reassign(held[0], "Tracy")
	b.shows(".why", "It was given to somebody else at ")
	b.shows(".why", "Your note is kept.")
	if shown := b.eval(`document.querySelector('#work li:first-child textarea').value + !!document.querySelector('.again')`); shown != "minefalse" {
		t.Errorf("the note, and whether it can be claimed: %s", shown)
	}
	reassign(s.Takes("Tracy", 1)[0], "Oliver")
	b.shows("#work h3", "d")
	if a, err := s.As("Oliver", 0).Do(t.Context(), http.MethodPost, "/api/v1/tasks/verify/items/e/claim", nil); err != nil || a.Status != 201 {
		t.Fatalf("claim: %d %s %v", a.Status, a.Body, err)
	}
	b.shows("#work h3", "e")
	b.await(`document.querySelector('#held').textContent === '3'`, e2e.Soon)
	b.notes("#told") // messages within a second stand together, and then go
	token := s.manages("POST", "/work/release", map[string]any{"user": "Oliver", "dry_run": true}).Token
	s.manages("POST", "/work/release", map[string]any{"user": "Oliver", "token": token})
	b.works(1, e2e.Soon)
	for _, item := range []string{"c", "d", "e"} {
		b.showed(item + ": It was returned at ")
	}
	b.showed("by a manager")
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

// Work that the client lets go of is not reported as gone, in whatever order events and answers come; all other work
// is, once.
func TestPageClientTellsWhatIsGone(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	told, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](goneScript, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	const want = `[["left 12000 null","1 is completed","2 is returned","gone 3 expired","/problems/lease-lost",` +
		`"gone 4 held","/problems/lease-lost","gone 5 held","6 is held"],["6"]]`
	if told != want {
		t.Errorf("told %s\nwant %s", told, want)
	}
}
