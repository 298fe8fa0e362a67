package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	protocol "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// awaitIn waits until an expression is true in the frame that shows a page of that address. The frame may have another
// origin, which the page around it can't read.
func awaitIn(b *page.Browser, url, expression string, within time.Duration) {
	b.T.Helper()
	deadline := time.Now().Add(timeout.Scale(within))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		seen, err := page.Run(b, inFrame[string](url, fmt.Sprintf(page.Looking, expression)))
		if err == nil && seen == "true" {
			return
		}
		if time.Now().After(deadline) {
			shown, _ := page.Run(b, inFrame[string](url, "document.body.innerText"))
			b.T.Fatalf("in the frame of %s not within %v: %s (last: %s, %v). It shows:\n%s", url, within, expression, seen, err, shown)
		}
		<-tick.C
	}
}

func inFrame[T any](url, expression string) chromedp.Action[T] {
	return func(ctx context.Context, tab *chromedp.Target) (nothing T, err error) {
		tree, err := cdp.Call(ctx, tab, protocol.GetFrameTree, cdp.Empty{})
		if err != nil {
			return nothing, err
		}
		for _, child := range tree.FrameTree.ChildFrames {
			if !strings.HasPrefix(child.Frame.URL, url) {
				continue
			}
			world, err := cdp.Call(ctx, tab, protocol.CreateIsolatedWorld, protocol.CreateIsolatedWorldParams{FrameID: child.Frame.ID, WorldName: "test"})
			if err != nil {
				return nothing, err
			}
			return chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise, func(p *runtime.EvaluateParams) { p.ContextID = world.ExecutionContextID })(ctx, tab)
		}
		return nothing, fmt.Errorf("no frame shows %s", url)
	}
}

// openDemo opens a demo's page in a window that shows all of it: a frame outside of the window is not drawn.
func openDemo(b *page.Browser, d *e2e.StartedDemo) {
	b.T.Helper()
	b.Do(chromedp.EmulateViewport(1400, 1600), chromedp.Navigate(d.Page()))
}

// auditAround runs axe on the page without its frames. Axe asks them all the same, and they don't answer.
func auditAround(b *page.Browser, t *testing.T) {
	t.Helper()
	b.Audit(t)
	b.Forgives("Failed to execute 'postMessage'")
}

var databaseLine = regexp.MustCompile(`psql '([^']+)'`)

// databaseOf returns the URL of a demo's database.
func databaseOf(d *e2e.StartedDemo) *pgx.Conn {
	d.T.Helper()
	conn, err := pgx.Connect(d.T.Context(), databaseLine.FindStringSubmatch(d.Printed())[1])
	if err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// told reads one row into the given variables.
func told(t *testing.T, db *pgx.Conn, sql string, into ...any) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql).Scan(into...); err != nil {
		t.Fatal(err)
	}
}

// compared is the demo page's table, a line for each row.
func compared(b *page.Browser) string {
	b.T.Helper()
	return b.Eval(`[...document.querySelectorAll('#comparison tr')].map((row) => [...row.cells].map((cell) => cell.textContent.trim()).join(' | ')).join('\n')`)
}

// inView fails unless the element that the expression finds in a node's pane lies within the window, whose page was not scrolled.
func inView(b *page.Browser, node, found string) {
	b.T.Helper()
	awaitIn(b, node, found, e2e.Soon)
	b.Eval(`(scrollTo(0, 0), '')`)
	bottom, err := page.Run(b, inFrame[float64](node, "("+found+").getBoundingClientRect().bottom / innerHeight")) // a desk is drawn smaller
	if err != nil {
		b.T.Fatal(err)
	}
	around := fmt.Sprintf(`(() => { const f = document.querySelector('iframe[src^=%q]').getBoundingClientRect(); return JSON.stringify([f.top + f.height * %f, Math.min(f.bottom, innerHeight)]); })()`, node, bottom)
	var ends [2]float64
	if err := json.Unmarshal([]byte(b.Eval(around)), &ends); err != nil {
		b.T.Fatal(err)
	}
	if ends[0] > ends[1] {
		b.T.Errorf("in the pane of %s %s ends at %.0f, below what is in view (%.0f)", node, found, ends[0], ends[1])
	}
}

// firstButtons fails unless, on a usual laptop's screen, everybody's button of the main task is in view.
func firstButtons(b *page.Browser, nodes []string, shot string) {
	b.T.Helper()
	b.Do(chromedp.EmulateViewport(1366, 768))
	for _, node := range nodes[:2] {
		inView(b, node, `[...document.querySelectorAll('#tasks button')].find((e) => e.ariaLabel?.startsWith('Get Work: Verify'))`)
	}
	b.Shoot(shot)
	b.Do(chromedp.EmulateViewport(1400, 1600))
}

const (
	soonPlayed = 90 * time.Second // on a machine that does other things, too
	heldByDemo = `select count(*), count(distinct item) from getwork.work where user_name like 'demo person %' and state = 'held'`
)

// lighter removes four fifths of the lines of accounts that no open statement concerns. The task's query finds the same loans in a quarter
// of its time: people who run their own queries do so fifty times.
const lighter = `delete from bank.transaction t where account_id % 5 > 0 and not exists (
  select from bank.statement s where s.account_id = t.account_id and s.submitted_at is not null and s.verified_at is null)`

// A visitor sees Oliver, Tracy and a manager side by side, the race among people who run their own queries, and no race
// among fifty who click on three nodes. Then the visitor presses Ctrl-C in the middle of it. The fifty queries at once would starve
// other tests, so that nothing runs beside it.
func TestDemoPage(t *testing.T) {
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	d := e2e.StartDemo(t, e2e.DemoDir(t), "--nodes", "3", "--loans", "1500")
	nodes := d.Ready()
	family := d.Family()
	db := databaseOf(d)
	openDemo(b, d)
	for i, who := range []string{"Oliver", "Tracy", "Mia"} {
		awaitIn(b, nodes[i], fmt.Sprintf(`document.querySelector('#name').textContent === %q && document.querySelector('#chip').dataset.state === 'live'`, who), e2e.Soon)
	}
	awaitIn(b, nodes[2], `location.pathname === '/floor' && document.querySelector('#role').textContent === 'manager'`, e2e.Soon)

	awaitIn(b, nodes[0], `[...document.querySelectorAll('button')].some((e) => e.ariaLabel?.startsWith('Get Work: Verify') && (e.click(), true))`, e2e.Soon)
	var item string
	e2e.Await(t, "Oliver holds a loan", soonPlayed, func() bool {
		return db.QueryRow(t.Context(), `select item from getwork.work where user_name = 'Oliver' and state = 'held'`).Scan(&item) == nil
	})
	awaitIn(b, nodes[0], fmt.Sprintf(`document.querySelector('#work').innerText.includes(%q)`, item), e2e.Soon)
	awaitIn(b, nodes[2], `document.querySelector('#view').innerText.includes('Oliver')`, e2e.Soon)

	if _, err := db.Exec(t.Context(), lighter); err != nil {
		t.Fatal(err)
	}
	auditAround(b, t)
	firstButtons(b, nodes, "demo-begin")
	b.Eval(`(new MutationObserver(() => { window.barred ||= document.querySelector('[data-scene=naive] button').ariaDisabled === 'true';
		const now = document.querySelector('[data-scene=naive] .now')?.textContent; // on a busy machine no text may have both, if all queries end together
		window.racing ||= /[1-9][0-9]* queries under way, [0-9]+ loans handed out twice/.test(now);
		window.twice ||= /[0-9]+ queries under way, [1-9][0-9]* loans handed out twice/.test(now); })
		.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true }), '')`)
	b.Click(`[data-scene=getwork] button`)
	b.Await(`window.barred`, e2e.Soon) // while the other is played
	b.Await(`document.querySelector('[data-scene=getwork]').dataset.state === 'done'`, soonPlayed)
	var held, different, queries int
	told(t, db, heldByDemo, &held, &different)
	told(t, db, `select count(distinct round_id) from getwork.work_requested where user_name like 'demo person %'`, &queries)
	if held != 100 || different != 100 {
		t.Errorf("fifty people hold %d loans, %d different ones; each wanted 2", held, different)
	}
	if compared(b) != "" {
		t.Errorf("one half alone is compared:\n%s", compared(b))
	}
	b.Await(`document.querySelector('[data-scene=getwork] [role=status]').textContent.startsWith('50 of 50 people served. No loan is with two people. ')`, e2e.Soon)
	if told := b.Eval(`document.querySelector('[data-scene=getwork] [role=status]').textContent`); !regexp.MustCompile(`One query ran, on node [123], for 50 people|2 queries ran`).MatchString(told) {
		t.Errorf("fifty clicked, and the page says %s", told)
	}
	b.Await(`document.querySelectorAll('[data-scene=getwork] .dots .dot[data-is=served]').length === 50`, e2e.Soon)

	b.Eval(`(new MutationObserver(() => { window.waited ||= document.querySelector('[data-scene=naive] .dot[data-is=waits]') !== null; })
		.observe(document.querySelector('[data-scene=naive]'), { subtree: true, childList: true, attributes: true }), '')`)
	b.Click(`[data-scene=naive] button`)
	b.Await(`document.querySelectorAll('[data-scene=naive] .dot[data-is=twice]').length > 1`, soonPlayed)
	b.Await(`window.waited`, e2e.Soon)
	b.Await(`document.querySelector('[data-scene=naive]').dataset.state === 'done'`, 3*soonPlayed)
	b.Await(`window.racing && window.twice`, e2e.Soon)
	shown := compared(b)
	t.Logf("%d rounds:\n%s", queries, shown)
	for _, row := range []string{`Without \| With getwork`, `people \| 50 \| 50`, `queries run \| 50 \| [12]`, `assignments \| 100 \| 100`, `duplicate assignments \| [1-9][0-9]* \| 0`} {
		if !regexp.MustCompile(`(?m)` + row + `$`).MatchString(shown) {
			t.Errorf("the table has no row %s:\n%s", row, shown)
		}
	}
	auditAround(b, t)
	firstButtons(b, nodes, "demo-end")
	var were int
	told(t, db, heldByDemo, &held, &different)
	told(t, db, `select (select count(*) from getwork.work where user_name like 'demo person %') + (select count(*) from getwork.work_requested where user_name like 'demo person %')`, &were)
	if were != 0 {
		t.Errorf("afterwards figures about people count %d rows of the crowd", were)
	}
	var table *string
	told(t, db, `select to_regclass('public.naive_work')::text`, &table)
	if held != 0 || table != nil {
		t.Errorf("afterwards the crowd holds %d loans, and the scratch table is %v", held, table)
	}

	// The fifty take the whole machine, and a browser may see it only when they are done. So PostgreSQL shows that their queries
	// run; the scene first runs one query alone.
	b.Eval(`(setTimeout(() => document.querySelector('[data-scene=naive] button').click()), '')`)
	e2e.Await(t, "several of the fifty run their queries", soonPlayed, func() bool {
		var running int
		told(t, db, `select count(*) from pg_stat_activity where application_name = 'naive' and state = 'active'`, &running)
		return running > 1
	})
	_ = db.Close(t.Context())
	if err := d.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := d.Status(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
	e2e.Gone(t, family, time.Second)
	b.Await(`document.querySelector('#error').textContent.includes('does not answer')`, e2e.Soon)
}

// A scene that is stopped leaves nothing behind: nobody waits, and nobody holds anything. A node that is killed while
// people wait on it loses no loans, once it is back.
func TestDemoPageStops(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	d := e2e.StartDemo(t, e2e.DemoDir(t), "--loans", "1500")
	d.Ready()
	db := databaseOf(d)
	openDemo(b, d)
	b.Await(`document.querySelectorAll('iframe').length === 2 && document.body.innerText.includes('no room for Mia here')`, e2e.Soon)
	for _, scene := range []string{"naive", "getwork"} {
		b.Click(`[data-scene=` + scene + `] button`)
		b.Click(`[data-scene=` + scene + `] button + button:not([hidden])`)
		b.Await(`document.activeElement.matches('[data-scene=`+scene+`] .primary')`, e2e.Soon) // the focus stays on something that exists
		b.Await(fmt.Sprintf(`document.querySelector('[data-scene=%s]').dataset.state === 'stopped'`, scene), e2e.Soon)
	}
	e2e.Await(t, "nobody of the crowd holds or waits for anything", e2e.Soon, func() bool {
		var held, waiting int
		told(t, db, `select (select count(*) from getwork.work where state = 'held'), (select count(*) from getwork.work_requested where state = 'pending')`, &held, &waiting)
		return held == 0 && waiting == 0
	})

	b.Click(`[data-scene=getwork] button`)
	b.Await(`document.querySelectorAll('[data-scene=getwork] .dot[data-is=waits]').length > 25`, soonPlayed)
	b.Click(`[data-node="2"] button`) // people who wait there go on at the other node, as with a load balancer in front
	b.Await(`document.querySelector('[data-node="2"] button').textContent === 'Start'`, e2e.Soon)
	b.Await(`document.querySelector('[data-scene=getwork]').dataset.state === 'done'`, soonPlayed)
	b.Await(`document.querySelectorAll('[data-scene=getwork] .dot[data-is=served]').length === 50`, e2e.Soon)
}

// When a node is killed its pane says so, and comes back with the node. The last node can't be killed.
func TestDemoPageKillsNode(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	d := e2e.StartDemo(t, e2e.DemoDir(t))
	nodes := d.Ready()
	openDemo(b, d)
	awaitIn(b, nodes[0], `document.querySelector('#chip').dataset.state === 'live'`, e2e.Soon)
	b.Click(`[data-node="1"] button`)
	b.Await(`document.querySelector('[data-node="1"] .badge').textContent === 'killed'`, e2e.Soon)
	awaitIn(b, nodes[0], `document.querySelector('#banner').checkVisibility()`, e2e.Soon)
	b.Click(`[data-node="2"] button`)
	b.Await(`document.querySelector('#error').textContent.includes('the last living node')`, e2e.Soon)
	b.Await(`document.querySelector('[data-node="1"] button').ariaLabel === 'Start node 1'`, e2e.Soon)
	b.Do(chromedp.Reload())
	b.Await(`document.querySelector('[data-node="1"] .down')`, e2e.Soon) // no frame, which would show the browser's own error
	b.Click(`[data-node="1"] button`)
	awaitIn(b, nodes[0], `document.querySelector('#chip').dataset.state === 'live' && document.querySelector('#name').textContent === 'Oliver'`, e2e.Soon)
	if !strings.Contains(d.Printed(), "node 1 was killed from the page; the other 1 go on") {
		t.Errorf("the demo says %s", d.Printed())
	}
}

// The demo's page obeys only itself, and a node's page may be framed only where its settings allow it.
func TestDemoPageKeepsToItself(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	d := e2e.StartDemo(t, e2e.DemoDir(t))
	d.Ready()
	address := d.Page()
	for name, header := range map[string][2]string{
		"another site's page": {"Sec-Fetch-Site", "cross-site"}, "a node's page": {"Sec-Fetch-Site", "same-site"},
		"an old browser": {"Origin", "http://evil.example"}, "another name of this address": {"Host", "evil.example"},
	} {
		for _, path := range []string{"/scenes/naive", "/stop", "/nodes/1/kill"} {
			r, _ := http.NewRequestWithContext(t.Context(), "POST", address+path, nil)
			r.Header.Set(header[0], header[1])
			if header[0] == "Host" {
				r.Host = header[1]
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != 403 && answer.StatusCode != 421 {
				t.Errorf("POST %s of %s is answered %s", path, name, answer.Status)
			}
		}
	}
	for path, status := range map[string]int{"/scenes/other": 404, "/nodes/3/kill": 404, "/nodes/1/sell": 404, "/nodes/1/start": 409} {
		answer, err := http.Post(address+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != status {
			t.Errorf("POST %s is answered %s, want %d", path, answer.Status, status)
		}
	}
	frames := func(url string) {
		t.Helper()
		around := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `<!doctype html><iframe src=%q onload="document.title='loaded'"></iframe>`, url)
		}))
		defer around.Close()
		b.Do(chromedp.Navigate(around.URL))
		b.Await(`document.title === 'loaded'`, e2e.Soon)
		e2e.Await(t, "the console says that "+url+" is not shown in a strange page's frame", e2e.Soon, func() bool { // it may come after the load
			return b.Forgives("frame-ancestors")
		})
	}
	frames(s.Nodes[0].URL)
	frames(address)
	frames(d.Ready()[0])
}

// A node that ends by itself, or is killed from a terminal, is shown as gone.
func TestDemoPageNodeEnds(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	d := e2e.StartDemo(t, e2e.DemoDir(t))
	d.Ready()
	openDemo(b, d)
	b.Await(`document.querySelectorAll('iframe').length === 2`, e2e.Soon)
	_, text, _ := strings.Cut(d.Printed(), "(process ")
	pid, _, _ := strings.Cut(text, ")")
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e2e.Await(t, "the demo says so", e2e.Soon, func() bool { return strings.Contains(d.Printed(), "the other 1 go on") })
	b.Await(`document.querySelector('[data-node="1"] button').textContent === 'Start'`, e2e.Soon)
}

// The demo's page shows three people, each on a node: Oliver clicks, and the manager sees what he holds.
func TestFirefoxDemo(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	f := page.NewFirefox(t, nil)
	d := e2e.StartDemo(t, e2e.DemoDir(t), "--nodes", "3")
	d.Ready()
	f.Size(1400, 1600)
	f.Open(d.Page())
	f.Await(`document.querySelectorAll('iframe').length === 3`, e2e.Soon)
	within := func(i int, then func()) {
		t.Helper()
		f.Do("WebDriver:SwitchToFrame", map[string]any{"id": i}, nil)
		then()
		f.Do("WebDriver:SwitchToFrame", map[string]any{"id": nil}, nil)
	}
	for i, who := range []string{"Oliver", "Tracy", "Mia"} {
		within(i, func() {
			f.State("live", 2*e2e.Soon)
			f.Shows("#name", who)
		})
	}
	within(0, func() {
		get := page.Called("button", "Get Work: Verify")
		f.Await(get, e2e.Soon)
		f.Eval(`(` + get + `.focus(), '')`) // Marionette would click where the button were if panes were not drawn smaller
		f.Keys(page.KeyEnter)
		f.Await(`document.querySelectorAll('#work .key').length > 0`, soonPlayed)
	})
	within(2, func() { f.Shows("[data-part=held]", "Oliver") })
	f.Shoot("demo 1400-light")
	f.Audit(t)
}
