package access

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	process "getwork/cmd/internal/node"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// provider is npm's oidc-provider, which others have written and certified.
type provider struct {
	issuer string

	mu   sync.Mutex
	said []string
}

// startProvider starts it for one client, getwork at that URL.
func startProvider(t *testing.T, public string) *provider {
	t.Helper()
	folder := os.Getenv("GETWORK_TEST_OIDC_PROVIDER")
	if folder == "" {
		t.Skip("GETWORK_TEST_OIDC_PROVIDER names no folder with npm's oidc-provider: cp testdata/oidc-provider/package*.json FOLDER; npm ci --prefix FOLDER")
	}
	c := exec.Command("node", "testdata/oidc-provider/provider.mjs", folder, public)
	c.SysProcAttr = process.Attributes()
	c.Stderr = t.Output()
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p, over := &provider{}, make(chan struct{})
	lines := bufio.NewScanner(out)
	if lines.Scan() {
		p.issuer = strings.TrimPrefix(lines.Text(), "issuer ")
	}
	go func() {
		defer close(over)
		for lines.Scan() {
			p.mu.Lock()
			p.said = append(p.said, lines.Text())
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-over
		_ = c.Wait()
	})
	if !strings.HasPrefix(p.issuer, "http://127.0.0.1:") {
		t.Fatalf("oidc-provider does not start; it says %q and what is above", p.issuer)
	}
	return p
}

// times counts what the provider said. It says so before it answers, but may be read after its answer is.
func (p *provider) times(text string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.said {
		if line == text {
			n++
		}
	}
	return n
}

// window is a window of either browser.
type window interface {
	Await(expression string, within time.Duration)
}

// does clicks an element, or does something else with it, once it is there.
func does(w window, selector, js string) {
	// The page that is looked at is the one that is acted on: another may come between two calls. It must be whole, since what is
	// still loading may undo the act. The act comes after the answer, which would be lost if the page went away before.
	w.Await(fmt.Sprintf(`((e) => {
		if (!e || document.readyState !== 'complete') return false;
		setTimeout(() => { %s; });
		return true;
	})(document.querySelector(%q))`, js, selector), e2e.Soon)
}

// passes logs somebody in at the provider: they name themselves, and consent.
func (p *provider) passes(w window, user string) {
	does(w, `input[name="login"]`, fmt.Sprintf(`e.value = %q; e.form.password.value = 'x'; e.form.requestSubmit()`, user))
	does(w, `form[action^="`+p.issuer+`/interaction/"] input[value="consent"]`, `e.form.requestSubmit()`)
	w.Await(fmt.Sprintf(`document.querySelector('button#who #name')?.textContent === %q && document.querySelector('#view > *')`, user), e2e.Soon)
}

// leavesProvider confirms a log-out at the provider.
func (p *provider) leavesProvider(w window) { does(w, `button[name="logout"]`, `e.click()`) }

// People log in at an identity provider that others have written: Chromium and Firefox, the log-in begun on one node and ended on
// another, through nginx. The provider's refresh tokens are good once. A log-out here ends the session there; one there ends the
// session here within two seconds, by back channel.
func TestOIDCProvider(t *testing.T) {
	t.Parallel()
	nginx := installed(t, "nginx", "nginx-light")
	free, err := net.Listen("tcp", "127.0.0.1:0") // the public URL must be known first
	if err != nil {
		t.Fatal(err)
	}
	listen := free.Addr().String()
	public := "http://" + listen
	_ = free.Close()
	p := startProvider(t, public)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret of the tests, long enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := e2e.NewSite(t, 1, schematest.Plain(t)) // its node is for the test's own steps
	page.Leased(s, "1h", "a", "b")
	nodes := cluster.Start(t, 2, cluster.Options{DatabaseURL: s.URL, Args: []string{"--auth", "oidc", "--public-url", public, "--trust-query-writers",
		"--oidc-issuer", p.issuer, "--oidc-client-id", "getwork", "--oidc-client-secret-file", secret, "--oidc-scopes", "openid profile offline_access",
		"--grant", "worker=loan-desk"}})
	runNginx(t, nginx, listen, nodes[0].URL, nodes[1].URL)

	b, f := page.NewBrowser(t, ""), page.NewFirefox(t, nil)
	b.Do(chromedp.Navigate(public + "/wall?task=verify"))
	follows(b, "Log in")
	p.passes(b, "Oliver")
	if is := b.Eval(`location.pathname + location.search`); is != "/wall?task=verify" {
		t.Errorf("it came back to %s", is)
	}
	f.Open(public)
	does(f, `#log-in a.button`, `e.click()`)
	p.passes(f, "Tracy")
	if began := e2e.Column[int](s, `select count(distinct node)::int from getwork.audit where act = 'log-in'`)[0]; began != 1 {
		t.Errorf("call-backs came to %d nodes", began)
	}

	for i := range 2 { // the second token that is shown is the one that the first refresh brought
		before := e2e.Column[string](s, `select encode(refresh, 'hex') from getwork.session order by public_id`)
		s.Exec(`update getwork.session set refreshed_at = refreshed_at - interval '11 minutes', refreshing_until = null`)
		e2e.Await(t, fmt.Sprintf("refresh %d of both", i+1), e2e.Soon, func() bool {
			now := e2e.Column[string](s, `select encode(refresh, 'hex') from getwork.session where ended_at is null and refreshed_at > clock_timestamp() - interval '1 minute' order by public_id`)
			return len(now) == 2 && now[0] != before[0] && now[1] != before[1]
		})
	}
	const refreshed, ended = "gave tokens for refresh_token", "told getwork that a session has ended"
	e2e.Await(t, "it says so", e2e.Soon, func() bool { return p.times(refreshed) >= 4 })

	f.Press("button", "Tracy")
	f.Press("button", "Log out")
	p.leavesProvider(f)
	f.Await(`document.querySelector('#log-in h1')?.textContent === 'Log in' && location.href === '`+public+`/'`, e2e.Soon)
	does(f, `#log-in a.button`, `e.click()`)
	f.Await(`document.querySelector('input[name="login"]')`, e2e.Soon) // it knows nobody there
	e2e.Await(t, "the back channel of Tracy's log-out", e2e.Soon, func() bool { return p.times(ended) == 1 })

	other := b.Window()
	other.Do(chromedp.Navigate(p.issuer + "/session/end"))
	p.leavesProvider(other)
	e2e.Await(t, "the back channel", e2e.Soon, func() bool { return p.times(ended) == 2 })
	b.Await(`document.querySelector('#log-in h1')?.textContent === 'You are logged out'`, 2*time.Second)
	if left := e2e.Column[int](s, `select count(*)::int from getwork.session where ended_at is null`)[0]; left != 0 {
		t.Errorf("%d sessions live on", left)
	}
	if n := p.times(refreshed); n != 4 {
		t.Errorf("it gave tokens for %d refresh tokens", n)
	}
}

// runNginx runs nginx so that a log-in begins at one node, and its call-back comes to the other.
func runNginx(t *testing.T, nginx, listen, one, other string) {
	t.Helper()
	dir := t.TempDir()
	config := "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += kind + "_temp_path " + kind + ";\n"
	}
	config += fmt.Sprintf(`
		map $http_upgrade $upgrading { default upgrade; '' ''; }
		server {
			listen %s;
			proxy_http_version 1.1;
			proxy_set_header Host $http_host;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $upgrading;
			location / { proxy_pass %s; }
			location = /auth/callback { proxy_pass %s; }
		}
	}`, listen, one, other)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(nginx, "-e", "stderr", "-p", dir, "-c", file)
	c.Stdout, c.Stderr, c.SysProcAttr = io.Discard, t.Output(), process.Attributes()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	timeout.Await(t, "nginx listens", func() bool {
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}
