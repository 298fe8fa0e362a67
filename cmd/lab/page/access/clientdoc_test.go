package access

import (
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

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// fromClientDoc returns the programs in docs/client.md, by file name.
func fromClientDoc(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile(lab.Path("docs/client.md"))
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
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 9) i order by i`)
	s.Task("approve", `select 1 as item`)
	own := ownPage(t, s.Nodes[0])
	b := page.Workbench(t, own, "Oliver", "worker")

	b.Do(chromedp.Navigate(own + "/own/page.js"))
	b.Await(`document.querySelector('#status').textContent === 'live'`, e2e.Soon)
	b.Click("#get")
	b.Await(`[...document.querySelectorAll('#work li')].map((li) => li.textContent).join() === '1,2'`, e2e.Soon)

	b.Do(chromedp.Navigate(own + "/own/none.js"))
	b.Eval(`(new Worker('/worker.js', { type: 'module' }).onmessage = (e) => { window.held = e.data; }, '')`)
	b.Await(`window.held?.length === 2`, e2e.Soon)
	page.InPage[any](b, `await rest().getWork('verify', { count: 4 }, { Prefer: 'wait=20' });`)
	b.Await(`window.held.length === 6`, e2e.Soon)

	states := func() string {
		return strings.Join(e2e.Column[string](s, `select state::text from getwork.work order by item::int`), " ")
	}
	page.InPage[any](b, `
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
	b.Do(chromedp.Navigate("about:blank"))
	e2e.Await(t, "the outcome is sent as the page is left", e2e.Soon, func() bool { return states() == "completed held never held held held" })

	b.Do(chromedp.Navigate(own + "/livez"))
	if kept := b.Eval(`sessionStorage.kept`); kept != "1" { // the browser may have sent another in time, too
		t.Errorf("%s calls were to outlive the page, want 1", kept)
	}
	page.InPage[any](b, `await rest().logIn('Olga', 'observer')`)
	b.Do(chromedp.Navigate(own + "/own/watch.js"))
	b.Await(`document.querySelector('#counts').dataset.verify === '0 waiting'`, e2e.Soon)
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
	b.Await(`document.querySelector('#counts').dataset.approve === '1 waiting'`, e2e.Soon)
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

// The Node program in docs/client.md does all jobs, waits for more, and ends when it is asked to.
func TestClientDocInNode(t *testing.T) {
	t.Parallel()
	node := installed(t, "node", "nodejs")
	s := e2e.NewSite(t, 1, "")
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
	module, err := os.ReadFile(lab.Path("web/static/getwork.js"))
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
			return e2e.Column[int](s, `select count(*)::int from getwork.work where state = 'completed' and user_name = 'archive'`)[0] == want
		}
	}
	e2e.Await(t, "the existing jobs are done", e2e.Soon, completed(2))
	e2e.Await(t, "the program waits for more", e2e.Soon, func() bool {
		return e2e.Column[int](s, `select count(*)::int from getwork.work_requested where state = 'pending'`)[0] == 1
	})
	push("c")
	e2e.Await(t, "the new job is done", 3*e2e.Soon, completed(3))
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
		t.Errorf("the program did not end: %v", <-ended)
	}
}

// The program for all tasks in docs/client.md follows tasks that come and go.
func TestClientDocBoard(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	s := e2e.NewSite(t, 2, "")
	own := ownPage(t, s.Nodes[0])
	b := page.Workbench(t, own, "Olga", "observer")
	b.Do(chromedp.Navigate(own + "/own/board.js"))
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "query": nil})
	b.Await(`document.querySelector('#counts').textContent === 'verify: 0 waiting'`, e2e.Soon)
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "approve", "query": nil})
	b.Await(`document.querySelector('#counts').textContent === 'approve: 0 waiting, verify: 0 waiting'`, e2e.Soon)
	if _, _, err := s.As("Tracy", 1).Linger(t.Context(), "approve", 1, "1h"); err != nil {
		t.Fatal(err)
	}
	b.Await(`document.querySelector('#counts').textContent === 'approve: 1 waiting, verify: 0 waiting'`, e2e.Soon)
	page.Deletes(s, "verify", 1)
	b.Await(`document.querySelector('#counts').textContent === 'approve: 1 waiting'`, e2e.Soon)
}
