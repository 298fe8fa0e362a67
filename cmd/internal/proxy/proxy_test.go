package proxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"getwork/cmd/internal/proxy"
	"getwork/schema/schematest/timeout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that sends every line back.
func echo(t *testing.T, network, address string) net.Listener {
	t.Helper()
	in, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { in.Close(); conns.Wait() })
	return in
}

func start(t *testing.T, target string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// line is one client's connection.
type line struct {
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, p *proxy.Proxy) line {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return line{Conn: c, in: bufio.NewReader(c)}
}

func (l line) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(l, text+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (l line) hear(t *testing.T, text string) {
	t.Helper()
	_ = l.SetReadDeadline(time.Now().Add(timeout.Scale(30 * time.Second)))
	if got, err := l.in.ReadString('\n'); err != nil || got != text+"\n" {
		t.Fatalf("heard %q, %v; want %q", got, err, text)
	}
}

// silent checks that for d nothing comes, not even the end.
func (l line) silent(t *testing.T, d time.Duration) {
	t.Helper()
	_ = l.SetReadDeadline(time.Now().Add(d))
	if got, err := l.in.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v; want nothing", got, err)
	}
}

func (l line) closed(t *testing.T) {
	t.Helper()
	_ = l.SetReadDeadline(time.Now().Add(timeout.Scale(30 * time.Second)))
	if got, err := l.in.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v; want the end", got, err)
	}
}

func TestForwards(t *testing.T) {
	t.Parallel()
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		l := dial(t, start(t, echo(t, network, address).Addr().String()))
		l.say(t, "a")
		l.hear(t, "a")
	}
}

func TestFrozen(t *testing.T) {
	t.Parallel()
	for _, d := range []proxy.Direction{proxy.ToServer, proxy.ToClient, proxy.Both} {
		p := start(t, echo(t, "tcp", "127.0.0.1:0").Addr().String())
		old := dial(t, p)
		old.say(t, "before")
		old.hear(t, "before")
		p.Freeze(d)
		p.Freeze(d) // freezing twice changes nothing
		young := dial(t, p)
		old.say(t, "a")
		young.say(t, "b")
		old.silent(t, 50*time.Millisecond)
		young.silent(t, 50*time.Millisecond)
		p.Thaw()
		old.hear(t, "a")
		young.hear(t, "b")
	}
}

// Neither side learns that the other has gone.
func TestFrozenHidesTheEnd(t *testing.T) {
	t.Parallel()
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p := start(t, in.Addr().String())
	l := dial(t, p)
	server, err := in.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	l.say(t, "a") // by now both ends are forwarded
	if got, err := bufio.NewReader(server).ReadString('\n'); err != nil || got != "a\n" {
		t.Fatalf("the server heard %q, %v", got, err)
	}
	p.Freeze(proxy.Both)
	server.Close()
	l.silent(t, 50*time.Millisecond)
	if n := p.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	p.Thaw()
	l.closed(t)
}

func TestCut(t *testing.T) {
	t.Parallel()
	p := start(t, echo(t, "tcp", "127.0.0.1:0").Addr().String())
	l := dial(t, p)
	l.say(t, "a")
	l.hear(t, "a")
	p.Freeze(proxy.Both)
	p.Cut()
	l.closed(t)
	p.Thaw()
	l = dial(t, p)
	l.say(t, "b")
	l.hear(t, "b")
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	p := start(t, echo(t, "tcp", "127.0.0.1:0").Addr().String())
	old := dial(t, p)
	old.say(t, "a")
	old.hear(t, "a")
	p.Refuse(true)
	if c, err := net.Dial("tcp", p.Addr()); err == nil { // the reset may come before or after
		line{Conn: c, in: bufio.NewReader(c)}.closed(t)
		c.Close()
	}
	old.say(t, "still")
	old.hear(t, "still")
	p.Heal()
	l := dial(t, p)
	l.say(t, "b")
	l.hear(t, "b")
}

func TestDelay(t *testing.T) {
	t.Parallel()
	p := start(t, echo(t, "tcp", "127.0.0.1:0").Addr().String())
	l := dial(t, p)
	l.say(t, "a")
	l.hear(t, "a")
	p.Delay(50 * time.Millisecond)
	began := time.Now()
	l.say(t, "b")
	l.hear(t, "b")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("there and back in %v", took)
	}
}

// If the server is away, connections end; once it is back, new ones work.
func TestServerAway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	p := start(t, path)
	dial(t, p).closed(t)
	echo(t, "unix", path)
	l := dial(t, p)
	l.say(t, "a")
	l.hear(t, "a")
}

func TestURL(t *testing.T) {
	t.Parallel()
	p := start(t, "127.0.0.1:1")
	for url, want := range map[string][2]string{
		"postgres://u:p@127.0.0.1:5433/d?sslmode=disable":    {"127.0.0.1:5433", "postgres://u:p@" + p.Addr() + "/d?sslmode=disable"},
		"postgres://u@/d?host=/run/pg&port=5433&sslmode=off": {"/run/pg/.s.PGSQL.5433", "postgres://u@" + p.Addr() + "/d?sslmode=off"},
		"postgresql://localhost/d":                           {"localhost:5432", "postgresql://" + p.Addr() + "/d"},
	} {
		target, err := proxy.Target(url)
		by, err2 := p.URL(url)
		if err != nil || err2 != nil || target != want[0] || by != want[1] {
			t.Errorf("%s: target %s, %v; by the proxy %s, %v", url, target, err, by, err2)
		}
	}
	if _, err := p.URL("host=/run/pg"); err == nil {
		t.Error("an invalid URL is accepted")
	}
}
