package access

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	process "getwork/cmd/internal/node"
	"getwork/cmd/lab"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// fromDoc returns a block of docs/proxy.md, in that language.
func fromDoc(t *testing.T, language string) string {
	t.Helper()
	doc, err := os.ReadFile(lab.Path("docs/proxy.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(doc)
	if block == nil {
		t.Fatalf("docs/proxy.md has no block of %s any more; this test runs it", language)
	}
	return string(block[1])
}

// replaceAll replaces all matches, and fails the test if there are none.
func replaceAll(t *testing.T, text, pattern, by string) string {
	t.Helper()
	p := regexp.MustCompile(pattern)
	if !p.MatchString(text) {
		t.Fatalf("docs/proxy.md has no %s any more", pattern)
	}
	return p.ReplaceAllLiteralString(text, by)
}

// behindNginx starts an nginx in front of nodes, configured as docs/proxy.md says apart from addresses, and changed by
// config if that is given. nginx ends with the test, which is skipped if it is not installed.
func behindNginx(t *testing.T, nodes []string, config func(string) string) (address string) {
	t.Helper()
	nginx := installed(t, "nginx", "nginx-light")
	block := fromDoc(t, "nginx")
	var servers strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&servers, "server %s max_fails=0;\n", strings.TrimPrefix(n, "http://"))
	}
	block = replaceAll(t, block, `(?m)(^ *server 10\.0\.0\.\d+:8080 max_fails=0;\n)+`, servers.String())
	if config != nil {
		block = config(block)
	}
	return inFront(t, func(dir, listen string) *exec.Cmd {
		whole := "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			whole += kind + "_temp_path " + kind + ";\n"
		}
		whole += replaceAll(t, block, `listen 80;`, "listen "+listen+";") + "}\n"
		file := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(nginx, "-e", "stderr", "-p", dir, "-c", file)
	})
}

// behindHAProxy is the same with HAProxy.
func behindHAProxy(t *testing.T, nodes []string, config func(string) string) (address string) {
	t.Helper()
	haproxy := installed(t, "haproxy", "haproxy")
	block := fromDoc(t, "haproxy")
	var servers strings.Builder
	for i, n := range nodes {
		fmt.Fprintf(&servers, "    server n%d %s check\n", i, strings.TrimPrefix(n, "http://"))
	}
	block = replaceAll(t, block, `(?m)(^ *server \w 10\.0\.0\.\d+:8080 check\n)+`, servers.String())
	if config != nil {
		block = config(block)
	}
	return inFront(t, func(dir, listen string) *exec.Cmd {
		file := filepath.Join(dir, "haproxy.cfg")
		if err := os.WriteFile(file, []byte(replaceAll(t, block, `bind :80`, "bind "+listen)), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(haproxy, "-db", "-f", file)
	})
}

// proxies are the proxies that docs/proxy.md configures.
var proxies = map[string]func(t *testing.T, nodes []string, config func(string) string) string{
	"nginx": behindNginx, "haproxy": behindHAProxy,
}

// installed finds a program, even in folders of root's path, or skips the test.
func installed(t *testing.T, name, pack string) string {
	t.Helper()
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if found, err := exec.LookPath(candidate); err == nil {
			return found
		}
	}
	t.Skipf("no %s; on Debian: apt-get install %s", name, pack)
	return ""
}

// inFront starts a proxy on a free port, and retries on another if the port was taken meanwhile.
func inFront(t *testing.T, command func(dir, listen string) *exec.Cmd) (address string) {
	t.Helper()
	for range 5 {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listen := free.Addr().String()
		_ = free.Close()
		c := command(t.TempDir(), listen)
		c.Stdout, c.Stderr = t.Output(), t.Output()
		ended := make(chan struct{})
		if err := process.Tie(c, func(error) { close(ended) }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			<-ended
		})
		if listens(listen, ended) {
			return "http://" + listen
		}
	}
	t.Fatal("the proxy does not start; see above")
	return ""
}

// listens waits until something listens there. It returns false if the program has ended.
func listens(address string, ended <-chan struct{}) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-ended:
			return false
		case <-tick.C:
		}
	}
}

// events reads a user's event stream until the test ends.
func events(t *testing.T, c cluster.Client, path string) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", c.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Getwork-User", c.User)
	transport := &http.Transport{}
	response, err := transport.RoundTrip(r)
	if err != nil || response.StatusCode != 200 {
		t.Fatalf("event stream: %v %v", response, err)
	}
	heard, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		defer close(heard)
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			if event, found := strings.CutPrefix(lines.Text(), "event: "); found {
				heard <- event
			}
		}
	}()
	t.Cleanup(func() {
		_ = response.Body.Close()
		<-done
		transport.CloseIdleConnections()
	})
	return heard
}

// next waits for an event of that kind.
func next(t *testing.T, heard <-chan string, kind string, within time.Duration) {
	t.Helper()
	late := time.After(timeout.Scale(within))
	for {
		select {
		case event, open := <-heard:
			if !open {
				t.Fatalf("the event stream ended before %q came", kind)
			}
			if event == kind {
				return
			}
		case <-late:
			t.Fatalf("no %q within %v", kind, within)
		}
	}
}

// With the proxies of docs/proxy.md, but with nginx's default time-outs of 60 s, sockets and event streams on which
// nothing happens outlive the time-outs, and results are pushed within a second of the round. If an answer is held for
// too long, the proxy answers instead, and nothing is lost.
func TestPageBehindNginx(t *testing.T) {
	t.Parallel()
	staysLive(t, behindNginx)
}

func TestPageBehindHAProxy(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	staysLive(t, behindHAProxy)
}

func staysLive(t *testing.T, behind func(t *testing.T, nodes []string, config func(string) string) string) {
	t.Helper()
	s := e2e.NewSite(t, 2, "")
	url := behind(t, []string{s.Nodes[0].URL, s.Nodes[1].URL}, func(block string) string { return replaceAll(t, block, `\b180s\b`, "60s") })
	open := page.Gated(s)
	b := page.NewBrowser(t, countSockets)
	b.LogIn(url, "Oliver")
	b.State("live", e2e.Soon)
	b.GetWork(2)
	tracy := cluster.Client{URL: url, User: "Tracy"}
	socket, _, err := tracy.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(socket.Close)
	told := make(chan error, 1)
	go func() { // continually, or the server's pings stay unanswered
		_, err := socket.Until(t.Context(), func(e cluster.Event) bool { return e.Request != nil && e.Request.State == assign.Assigned })
		told <- err
	}()
	stream := events(t, tracy, "/api/v1/events")
	next(t, stream, "snapshot", e2e.Soon)
	began := time.Now()
	_, a, err := tracy.GetWork(t.Context(), "verify", 2, "Prefer", "wait=120")
	if err != nil || a.Status != http.StatusGatewayTimeout || a.Took < 55*time.Second {
		t.Errorf("an answer held for 120 s: %d after %v, %v; the proxy cuts it after 60 s", a.Status, a.Took, err)
	}
	e2e.Await(t, "longer than 65 s have passed", 20*time.Second, func() bool { return time.Since(began) > 65*time.Second })
	if p, err := tracy.Pipeline(t.Context()); err != nil || len(p.Requests) != 1 {
		t.Errorf("after the answer was cut, the waiting requests are %+v, %v", p.Requests, err)
	}
	open()
	page.Answered(s)
	b.GetsWorks(s, 2)
	b.Promptly(s, "the event stream has the request", time.Second, func() bool {
		select {
		case event, open := <-stream:
			if !open {
				t.Fatal("the event stream has ended")
			}
			return event == "request"
		default:
			return false
		}
	})
	b.Promptly(s, "the socket that was quiet for 65 s is told", time.Second, func() bool {
		select {
		case err := <-told:
			if err != nil {
				t.Errorf("the socket that was quiet for 65 s: %v", err)
			}
			return true
		default:
			return false
		}
	})
	if n := b.Eval(`String(sockets)`); n != "1" {
		t.Errorf("the page opened %s sockets; the first should have lasted", n)
	}
}

// countSockets counts how many sockets a page opens. It gives an answer thirty seconds instead of five, so that it
// gives up none because the machine stood still.
const countSockets = `(() => {
	const { WebSocket: Real, setTimeout: later } = window;
	window.setTimeout = (f, ms, ...rest) => later(f, ms === 5000 && new Error().stack.includes('getwork.js') ? 30_000 : ms, ...rest);
	window.sockets = 0;
	window.WebSocket = class extends Real { constructor(...of) { super(...of); window.sockets++; } };
})()`

// If nginx does not pass Upgrade on, the page polls, and says so.
func TestPageBehindNginxWithoutUpgrade(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := e2e.NewSite(t, 1, "")
	url := behindNginx(t, []string{s.Nodes[0].URL}, func(block string) string {
		return replaceAll(t, block, `(?m)^ *proxy_set_header (Upgrade|Connection).*\n`, "")
	})
	s.Task("verify", `select i as item from generate_series(1, 5) i`)
	b := page.NewBrowser(t, "")
	b.LogIn(url, "Oliver")
	b.Banner("The live connection is lost; polling every", e2e.Soon)
	b.Click(".task .get")
	b.Works(3, e2e.Soon)
	b.State("polling", e2e.Soon)
}
