package desk

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// Work that is taken away while its outcome waits to be sent stays on the page, with the reason, if something was typed
// in it.
func TestPageDeskTakenAwayWhileItWaits(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, page.UndoLasts)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "10m", "a", "b")
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	held := s.Takes("Oliver", 1)
	b.Works(1, e2e.Soon)
	b.TypeNote("mine")
	b.Press("#work .complete")
	b.Shows("#work .going", "a: completed.")
	page.Manages(s, "POST", fmt.Sprintf("/work/%d/reassign", held[0].ID), map[string]any{"user": "Tracy", "force": true})
	b.Await(`!document.querySelector('.going')`, e2e.Soon)
	b.Shows("#told", "a: It was given to somebody else at ")
	b.Press("#lost .key")
	b.Shows(".why", "Your note is kept.")
}

// A lease that ended while the server was away does not lose a note.
func TestPageDeskLeaseLostWhileKept(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, page.UndoLasts)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "15s", "a", "b") // longer than typing, and killing a node, may take
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	s.Takes("Oliver", 1)
	b.Works(1, e2e.Soon)
	b.TypeNote("mine")
	s.Nodes[0].Kill()
	b.Press("#work .complete")
	b.Eval(`(passes(), '')`)
	b.Shows("#work .going", "The server can’t be reached now")
	s.Await("the lease is over", 2*e2e.Soon, `select lease_expires_at < now() from getwork.work`)
	s.Nodes[0].Restart()
	b.Await(`!document.querySelector('.going')`, 3*e2e.Soon)
	b.Press("#lost .key")
	b.Shows(".why", "Your note is kept.")
}

// A log-out in one window sends what waits in another.
func TestPageDeskLogOutElsewhere(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b, s := desk(t, page.UndoLasts, "1h", 2)
	other := b.Window()
	other.Do(chromedp.Navigate(s.Nodes[0].URL))
	other.Works(2, e2e.Soon)
	other.Eval(unhurried + " ''")
	b.Press("#work li:first-child .complete")
	other.Shows("#work .going", "a: completed. In another tab.")
	other.Press("#log-out")
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	page.Disposes(s, "a completed, b held")
}

// If two are completed with "and next", two more come.
func TestPageDeskTwoNexts(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b, _ := desk(t, page.UndoLasts, "1h", 3)
	b.Eval(`(document.querySelector('.key').focus(), '')`)
	b.Keys("xcc")
	b.Await(`document.querySelectorAll('.going').length === 2`, e2e.Soon)
	b.Works(5, e2e.Soon)
}

// After a log-out no more work comes.
func TestPageDeskLogOutAtLimit(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b, s := desk(t, unhurried+page.UndoLasts, "1h", 2)
	page.Changes(s, "verify", map[string]any{"max_open": 2}, 0)
	b.Press(".task .name[aria-expanded]")
	b.Shows(".task", "You hold 2 of at most 2.")
	b.Press(".next")
	b.Shows("#work .going", "Then the next is asked for.")
	b.Press("#log-out")
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	page.Disposes(s, "a completed, b held")
	if n := e2e.Column[int](s, `select count(*)::int from getwork.work_requested`)[0]; n != 1 {
		t.Errorf("%d requests, want the first alone", n)
	}
}

// A proxy without a node answers 502.
func TestPageDeskBadGateway(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, page.UndoLasts)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "1h", "a", "b")
	target, err := url.Parse(s.Nodes[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	to := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return
		}
		to.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	b.LogIn(server.URL, "Oliver")
	s.Takes("Oliver", 2)
	b.Works(2, e2e.Soon)
	b.Press("#work li:first-child .complete")
	away.Store(true)
	b.Eval(`(passes(), '')`)
	b.Await(`document.querySelector('.going .quiet')?.textContent.includes('as soon as it can be') || document.querySelector('#work .error')?.textContent`, e2e.Soon)
	if said := b.Eval(`document.querySelector('#work .error')?.textContent ?? ''`); said != "" {
		t.Errorf("the work is not kept: %s", said)
	}
	away.Store(false)
	page.Disposes(s, "a completed, b held")
}

// Where digits need Shift, as in France, the second key of g 1 comes after a Shift key.
func TestPageDeskShiftWithinSequence(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b, _ := desk(t, page.UndoLasts, "1h", 0)
	b.Await(`document.querySelector('.task .name').textContent === 'verify'`, e2e.Soon)
	b.Eval(`(() => {
		for (const [key, shiftKey] of [['g', false], ['Shift', true], ['1', true]]) document.body.dispatchEvent(new KeyboardEvent('keydown', { key, shiftKey, bubbles: true, cancelable: true }));
		return '';
	})()`)
	b.Works(3, e2e.Soon)
}

// A snapshot that was read before an answer, and comes after it, does not remove what the answer brought.
func TestPageDeskSnapshotBeforeAnswer(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	got := page.InPage[[]string](b, `
		let socket;
		class Socket {
			constructor() { socket = this; }
			close() {}
			say(type, body) { this.onmessage({ data: JSON.stringify({ type, [type]: body }) }); }
		}
		const work = { id: '7', task: 'verify', item: 'a', state: 'held', lease_expires_at: null };
		const request = { id: '3', task: 'verify', state: 'assigned', wanted: 1, assigned: 1, work: [work] };
		const fetch = async () => new Response(JSON.stringify(request), { status: 201, headers: { 'Content-Type': 'application/json' } });
		const client = connect({ WebSocket: Socket, fetch });
		socket.say('hello', { user: 'oliver', server_time: new Date().toISOString() });
		await client.getWork('verify', 1);
		socket.say('snapshot', { work: [], requests: [] });
		socket.say('request', request);
		const held = [...client.work.keys()];
		client.close();
		return held;`)
	if fmt.Sprint(got) != "[7]" {
		t.Errorf("the page has %v of the held work", got)
	}
}

// A view whose files come after its user has gone back takes no focus from the note that they type by then: letters would be shortcuts.
func TestPageLateViewTakesNoFocus(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b, _, g := page.Behind(t, 1)
	asked, come := make(chan struct{}), make(chan struct{})
	ask, comes := sync.OnceFunc(func() { close(asked) }), sync.OnceFunc(func() { close(come) })
	defer comes()
	g.Refusing(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/views/wall.js") {
			ask()
			<-come
		}
		return false
	})
	b.Eval(`(document.querySelector('#view > *').left = true, '')`)
	b.Press(`#views a[href="/wall"]`)
	<-asked
	b.Eval(`(history.back(), '')`)
	b.Await(`location.pathname === '/' && !document.querySelector('#view > *').left`, e2e.Soon) // the desk is drawn anew
	b.Works(1, e2e.Soon)
	b.TypeNote("half ")
	comes()
	page.InPage[any](b, `await import(new URL('views/wall.js', document.querySelector('script[type=module][src$="/page.js"]').src).href)`)
	b.Settle()
	if at := b.Eval(`document.activeElement.tagName`); at != "TEXTAREA" {
		t.Errorf("the focus is on %s, want it on the note", at)
	}
}
