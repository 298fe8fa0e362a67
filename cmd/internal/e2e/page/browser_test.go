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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest/timeout"
)

// browser is a real browser with a profile of its own.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu   sync.Mutex
	said []string // the console's messages: violations of the page's policy, and exceptions
}

// newBrowser starts Chromium, or skips the test if it is not installed. script runs before each page's own scripts.
func newBrowser(t *testing.T, script string) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no chromium, chromium-browser or google-chrome on the PATH; on Debian: apt-get install chromium")
	}
	b := &browser{t: t}
	var err error
	for range 3 { // on a loaded machine a browser may fail to start
		if b.ctx, err = startBrowser(t, path); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	b.do(func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, tab, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return chromedp.Void{}, err
	})
	if err := chromedp.Listen(b.ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.said) > 0 {
			t.Errorf("the browser's console said:\n%s", strings.Join(b.said, "\n"))
		}
	})
	return b
}

// startBrowser does not use the test's context, which ends before the clean-ups: they end the browser in order. The
// browser writes to a folder that is then removed; the folder's name is short because it contains sockets.
func startBrowser(t *testing.T, path string) (context.Context, error) {
	folder, err := os.MkdirTemp("", "getwork-browser-")
	if err != nil {
		return nil, err
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(folder, "profile")), chromedp.Env("TMPDIR="+folder), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("lang", "en-US"))...)
	ctx, cancel := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		end()
		_ = os.RemoveAll(folder)
		return nil, err
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Log("end the browser: ", err)
			cancel()
		}
		end()
		if err := os.RemoveAll(folder); err != nil {
			t.Log("remove the browser's folder: ", err)
		}
	})
	return ctx, nil
}

// listen records messages that must not appear. Failed loads may: tests take nodes away.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if strings.Contains(e.Entry.Text, "Content Security Policy") || e.Entry.Source == "security" {
			b.said = append(b.said, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, fmt.Sprint(e.ExceptionDetails))
	}
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// click clicks an element once it is there, enabled, and stands still.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.await(fmt.Sprintf(steady, fmt.Sprintf("document.querySelector(%q)", selector)), e2e.Soon)
	b.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// steady reports whether an element can be clicked, and has not moved since the last call.
const steady = `((e) => {
	if (!e || e.disabled || !e.checkVisibility()) return false;
	e.scrollIntoViewIfNeeded();
	const { x, y, width, height } = e.getBoundingClientRect();
	const now = [x, y, width, height].join(), before = e.stoodAt;
	e.stoodAt = now;
	return before === now;
})(%s)`

// eval evaluates an expression in the page.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// await waits until an expression is true in the page, even across a reload.
func (b *browser) await(expression string, within time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout.Scale(within))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && yes {
			return
		}
		select {
		case <-ctx.Done():
			shown, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			b.t.Fatalf("not within %v: %s (last error: %v). The page shows:\n%s", within, expression, err, shown)
		case <-tick.C:
		}
	}
}

// logIn opens the page and logs in by name.
func (b *browser) logIn(url, user string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url), chromedp.SendKeys(chromedp.ID("user"), user, chromedp.NodeVisible))
	b.eval(`(document.querySelector('#log-in-form button').click(), '')`) // no mouse, since the click reloads the page
	b.await(`document.querySelector('#tasks .task')`, e2e.Soon)
}

// state waits for the page's message about its connection to the server.
func (b *browser) state(name string, within time.Duration) {
	b.t.Helper()
	b.await(fmt.Sprintf(`document.querySelector('#chip').dataset.state === %q`, name), within)
}

// banner waits for the banner's text.
func (b *browser) banner(text string, within time.Duration) {
	b.t.Helper()
	b.await(fmt.Sprintf(`document.querySelector('#banner').checkVisibility() && document.querySelector('#banner').innerText.includes(%q)`, text), within)
}

// works waits until the pipeline has that many items.
func (b *browser) works(n int, within time.Duration) {
	b.t.Helper()
	b.await(hasWorks(n), within)
}

func hasWorks(n int) string {
	return fmt.Sprintf(`document.querySelectorAll('#work > li').length === %d`, n)
}

// yes reports whether an expression is true in the page now.
func (b *browser) yes(expression string) bool {
	b.t.Helper()
	yes, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
	return err == nil && yes
}

// drawn is a promise that is fulfilled with the page's next frame, or after a second if there is none.
const drawn = `Promise.race([new Promise((f) => requestAnimationFrame(() => f(true))), new Promise((f) => setTimeout(f, 1000, true))])`

// promptly waits until something is true that is promised within a time. Delays caused by the machine count little: a
// turn in which the page, a node or the database is late with something cheap counts as a twentieth of a second.
func (s *site) promptly(b *browser, what string, within time.Duration, so func() bool) {
	s.T.Helper()
	const most = 50 * time.Millisecond
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	first := time.Now()
	for spent := time.Duration(0); ; {
		began := time.Now()
		if so() {
			return
		}
		if spent > within {
			s.T.Fatalf("not within %v, though the machine did not stand still: %s (%v by the clock)", within, what, time.Since(first))
		}
		_, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](drawn, chromedp.EvalAwaitPromise))
		for i := range s.Nodes {
			if err == nil {
				_, err = s.As("Oliver", i).Do(s.T.Context(), "GET", "/livez", nil)
			}
		}
		if err == nil {
			_, err = s.DB.Exec(s.T.Context(), `select`)
		}
		if err != nil {
			s.T.Fatal(err)
		}
		<-tick.C
		spent += min(time.Since(began), most)
	}
}

// getsWorks waits until the pipeline has that many items, within the promised second.
func (s *site) getsWorks(b *browser, n int) {
	s.T.Helper()
	s.promptly(b, fmt.Sprintf("%d items in the pipeline", n), time.Second, func() bool { return b.yes(hasWorks(n)) })
}

// notes records what elements show from now on, for showed: some texts appear only for a moment.
func (b *browser) notes(selector string) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`(() => {
		const shown = window.shown = new Set();
		const look = () => document.querySelectorAll(%q).forEach((e) => shown.add(e.innerText.replace(/\s+/g, ' ')));
		look();
		new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
		return '';
	})()`, selector))
}

// showed waits until a recorded text contains the given one.
func (b *browser) showed(text string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`[...shown].some((one) => one.includes(%q))`, text), e2e.Soon)
}

// getWork selects a count, clicks, and waits until the page shows that the request is pending.
func (b *browser) getWork(count int) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`(document.querySelector('.task input[value="%d"]').click(), '')`, count))
	b.click(".task form button")
	b.await(`document.querySelector('.pending').checkVisibility()`, e2e.Soon)
}

// gated creates a task whose query waits until open is called, and then returns five items.
func gated(s *site) (open func()) {
	s.T.Helper()
	conn, err := s.DB.Acquire(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(conn.Release)
	if _, err := conn.Exec(s.T.Context(), `select pg_advisory_lock(7)`); err != nil {
		s.T.Fatal(err)
	}
	s.Task("verify", `with gate as materialized (select pg_advisory_xact_lock_shared(7))
		select i as item, i * 1000.50 as amount from gate cross join generate_series(1, 5) i order by i`)
	return func() {
		s.T.Helper()
		if _, err := conn.Exec(s.T.Context(), `select pg_advisory_unlock(7)`); err != nil {
			s.T.Fatal(err)
		}
	}
}

// Oliver and Tracy, each with their own browser and node, click while one query runs. Both pipelines fill by push.
func TestPageOliverAndTracy(t *testing.T) {
	t.Parallel()
	oliver, tracy := newBrowser(t, ""), newBrowser(t, "")
	s := newSite(t, 2, "")
	open := gated(s)
	oliver.logIn(s.Nodes[0].URL, "Oliver")
	tracy.logIn(s.Nodes[1].URL, "Tracy")
	oliver.state("live", e2e.Soon)
	tracy.state("live", e2e.Soon)
	oliver.getWork(2)
	oliver.await(`document.querySelector('.task .phase').textContent.includes('query is running')`, e2e.Soon)
	tracy.getWork(3)
	open()
	s.answered()
	s.getsWorks(oliver, 2)
	s.getsWorks(tracy, 3)
	items := `[...document.querySelectorAll('#work h3')].map((e) => e.textContent).join()`
	if o, r := oliver.eval(items), tracy.eval(items); o != "1,2" || r != "3,4,5" {
		t.Errorf("Oliver has %s, Tracy %s; the best for the first would be 1,2 and 3,4,5", o, r)
	}
	oliver.click("#work li:first-child summary")
	oliver.do(chromedp.SendKeys(chromedp.CSS("#work li:first-child textarea"), "checked twice", chromedp.NodeVisible))
	oliver.click("#work li:first-child .primary")
	oliver.works(1, e2e.Soon)
	oliver.await(`document.activeElement.textContent === '2'`, e2e.Soon) // the focus moves to the next card
	oliver.click(`#work [data-return="24h"]`)
	oliver.works(0, e2e.Soon)
	tracy.click("#work .never")
	tracy.click("#work .never")
	tracy.works(2, e2e.Soon)
	var closed string
	err := s.DB.QueryRow(t.Context(), `
		select string_agg(item || ' ' || state || coalesce(' ' || after, '') || coalesce(' ' || note, ''), ', ' order by item)
		from getwork.work where state <> 'held'`).Scan(&closed)
	if want := "1 completed checked twice, 2 returned 24:00:00, 3 never"; err != nil || closed != want {
		t.Errorf("closed: %s (%v), want %s", closed, err, want)
	}
}

// answered waits until no request is pending in the database.
func (s *site) answered() {
	s.T.Helper()
	deadline := time.After(timeout.Scale(e2e.Soon))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var waiting bool
		if err := s.DB.QueryRow(s.T.Context(), `select exists (select from getwork.work_requested where state = 'pending')`).Scan(&waiting); err != nil {
			s.T.Fatal(err)
		}
		if !waiting {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.T.Fatal("somebody still waits")
		}
	}
}

// withoutSockets is a proxy in front of a node. Like some real proxies it refuses to upgrade, until allow is called.
func withoutSockets(t *testing.T, n *cluster.Node) (address string, allow func()) {
	t.Helper()
	target, err := url.Parse(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
	}}
	var allowed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" && !allowed.Load() {
			http.Error(w, "no upgrade here", http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return server.URL, func() { allowed.Store(true) }
}

// faster makes a page's clock and timers run that many times faster, until a test calls atSpeed in the page.
func faster(times int) string {
	return fmt.Sprintf(`(() => {
		const later = window.setTimeout, now = Date.now;
		let times = %d, base = now(), shown = base;
		window.setTimeout = (f, ms, ...rest) => later(f, ms / times, ...rest);
		Date.now = () => shown + times * (now() - base);
		window.atSpeed = (n) => { shown = Date.now(); base = now(); times = n; };
	})()`, times)
}

// If the socket is refused, the page polls, says so, and gets its work. When a socket becomes possible, the page uses
// it.
func TestPagePolls(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, faster(5)+bannersNoted)
	s := newSite(t, 1, "")
	open := gated(s)
	address, allow := withoutSockets(t, s.Nodes[0])
	b.logIn(address, "Oliver")
	b.await(`banners.includes('Push is gone; asking every 10 s.')`, e2e.Soon)
	b.eval(`(banners.length = 0, '')`)
	b.getWork(3)
	b.await(`banners.includes('Push is gone; asking every 5 s.')`, e2e.Soon)
	b.banner("Push is gone; asking every 20 s.", e2e.Soon)
	open()
	b.works(3, e2e.Soon)
	b.await(`document.querySelector('.ended').textContent.includes('3 items now in your pipeline')`, e2e.Soon)
	allow()
	b.eval(`(atSpeed(1), '')`) // a socket has five seconds to say hello, not one
	b.state("live", 3*e2e.Soon)
	b.await(`document.querySelector('#banner').hidden`, e2e.Soon)
}

// bannersNoted is a page script that records the banner's texts.
const bannersNoted = `;window.banners = [];
addEventListener('DOMContentLoaded', () => {
	const banner = document.querySelector('#banner-text');
	if (banner) new MutationObserver(() => banners.push(banner.textContent)).observe(banner, { subtree: true, childList: true, characterData: true });
})`

// After 15 minutes of polling the page stops, and says so. The request stays, and a button resumes.
func TestPageStopsAsking(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, faster(5))
	s := newSite(t, 1, "")
	open := gated(s)
	address, allow := withoutSockets(t, s.Nodes[0])
	b.logIn(address, "Oliver")
	b.state("polling", e2e.Soon)
	b.getWork(3)
	b.eval(`(atSpeed(200), '')`) // no sooner, or polling may stop before the click
	b.banner("Stopped asking, after 15 minutes without push. Your request stays", 3*e2e.Soon)
	if p, err := s.As("Oliver", 0).Pipeline(t.Context()); err != nil || len(p.Requests) != 1 {
		t.Errorf("the pipeline is %+v, %v; the request should still wait", p, err)
	}
	allow()
	b.eval(`(atSpeed(1), '')`) // a socket has five seconds to say hello, not a 200th of that
	b.click("#resume")
	b.state("live", e2e.Soon)
	open()
	b.works(3, e2e.Soon)
}

// The page's node is killed and comes back: so does the page, and the request is still answered.
func TestPageNodeKilled(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	open := gated(s)
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	b.getWork(2)
	s.Nodes[0].Kill()
	b.banner("the server can’t be reached. Your request stays; trying again", e2e.Soon)
	s.Nodes[0].Restart()
	b.state("live", 3*e2e.Soon)
	open()
	b.works(2, 3*e2e.Soon)
}

// Texts of tasks and items are shown as text, whatever they look like.
func TestPageShowsMarkupAsText(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	const evil = `<img src=x onerror="document.title='broken'"><script>document.title='broken'</script>`
	err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "verify", "title": evil, "description": evil, "query": `
		select $$` + evil + `$$ as item, $$` + evil + `$$ as "<b>column</b>", 'مرحبا' as "שם", 1234567.50 as amount, 12345678901234567890 as large, 2026 as year, date '2026-02-03' as day,
		  timestamptz '2026-02-03 04:05:06Z' as moment, null as nothing, true as yes, array['<i>', 'x'] as list`})
	if err != nil {
		t.Fatal(err)
	}
	b.logIn(s.Nodes[0].URL, "<b>Oliver</b>")
	b.state("live", e2e.Soon)
	b.click(".task form button")
	b.works(1, e2e.Soon)
	if n := b.eval(`String(document.querySelectorAll('main img, main script, main b, main i').length) + document.title`); n != "0<b>Oliver</b> · getwork" {
		t.Errorf("elements made from text, and the title: %q", n)
	}
	for selector, want := range map[string]string{"#work h3": evil, "#tasks h3": evil, "#tasks .description": evil, "#work .of": evil, "#name": "<b>Oliver</b>"} {
		if got := b.eval(fmt.Sprintf(`document.querySelector(%q).textContent`, selector)); got != want {
			t.Errorf("%s shows %q, want %q", selector, got, want)
		}
	}
	shown := b.eval(`[...document.querySelectorAll('#work dl div')].map((e) => e.children[0].textContent + '=' + e.children[1].textContent).join('\n')`)
	for _, want := range []string{"<b>column</b>=" + evil, "שם=مرحبا", "Amount=1,234,567.50", "Large=12345678901234567890", "Year=2026", "Day=Feb 3, 2026", "Moment=Feb 3, 2026, ", "Nothing=–", "Yes=yes"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the details lack %q:\n%s", want, shown)
		}
	}
}

// The page says in words why nothing was handed out.
func TestPageSaysWhyNot(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", `select 1 as item where false`)
	b.logIn(s.Nodes[0].URL, "Oliver")
	says := func(text string) {
		t.Helper()
		b.click(".task form button")
		b.await(fmt.Sprintf(`document.querySelector('.task').innerText.includes(%q)`, text), e2e.Soon)
	}
	says("Nothing matches this task now.")
	mary := s.As("mary", 0)
	mary.Role = "manager"
	change := func(version string, settings map[string]any) {
		t.Helper()
		if a, err := mary.Do(t.Context(), "PATCH", "/api/v1/tasks/verify", settings, "If-Match", version); err != nil || a.Status != 200 {
			t.Fatalf("change the task: %d %s %v", a.Status, a.Body, err)
		}
	}
	change(`"1"`, map[string]any{"query": `select 1 / (random() * 0)::int as item`})
	says("division by zero")
	change(`"2"`, map[string]any{"query": `select 1 as item`})
	if _, a, err := mary.GetWork(t.Context(), "verify", 1, "Prefer", "wait=60"); err != nil || a.Status != 201 {
		t.Fatalf("mary's click: %d %v", a.Status, err)
	}
	says("All that matches is with somebody already, or put off.")
	change(`"3"`, map[string]any{"paused": true})
	says("A manager has paused this task.")
}

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
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](clientScript, chromedp.EvalAwaitPromise))
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
		t.Errorf("a line that is lost (-want +got):\n%s", diff)
	}
	if last := polled[len(polled)-1]; last != "975.5 stopped patience" {
		t.Errorf("at last: %s", last)
	}
	if len(idle) > 0 {
		t.Errorf("after it stopped: %v", idle)
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

// The cookie belongs to the browser: when another tab logs in as somebody else, or logs out, this tab follows at once,
// so that nobody gets work under a name that the screen does not show.
func TestPageFollowsTheLogInOfOtherTabs(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", `select 1 as item`)
	b.logIn(s.Nodes[0].URL, "Olga")
	b.await(`document.querySelector('#name').textContent === 'Olga'`, e2e.Soon)
	otherTab := func(path, body, says string) {
		t.Helper()
		b.eval(fmt.Sprintf(`(async () => {
			await fetch(%q, {method: 'POST', body: %q});
			new BroadcastChannel('getwork').postMessage(%q);
		})(), ''`, path, body, says))
	}
	otherTab("/login", `{"user":"Otto"}`, "log-in")
	b.await(`document.querySelector('#name').textContent === 'Otto'`, e2e.Soon)
	otherTab("/logout", "", "log-out")
	b.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
}
