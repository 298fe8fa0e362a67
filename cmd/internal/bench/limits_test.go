package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

func TestForLibpq(t *testing.T) {
	t.Parallel()
	for database, want := range map[string]string{
		"postgres://tracy:secret@host/db?sslmode=disable":                 "postgres://tracy@host/db?sslmode=disable",
		"postgres://tracy@host/db?password=secret&application_name=a%20b": "postgres://tracy@host/db?application_name=a%20b",
		"postgres://tracy@host/db?sslmode=disable&password=secret":        "postgres://tracy@host/db?sslmode=disable",
		"postgres://tracy@host/db?password=a&pool_max_conns=9":            "postgres://tracy@host/db",
		"host=host pool_max_conns=9 pool_max_conn_lifetime=1h user=tracy": "host=host   user=tracy",
		"postgres://tracy@host/db":                                        "postgres://tracy@host/db",
		"host=host password=secret user=tracy":                            "host=host  user=tracy",
		`host=host password = 'a \' b' user=tracy`:                        "host=host  user=tracy",
	} {
		if got := forLibpq(database); got != want {
			t.Errorf("%s: %q", database, got)
		}
	}
}

// TestBareLimits runs each of the limits for a short time, and checks what they wrote.
func TestBareLimits(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	err := testEnv(t).onBare(t.Context(), 300_000, func(b *bare) error {
		wrote := func(what string, err error) (clicks int) {
			t.Helper()
			if errors.Is(err, errNoPgbench) {
				t.Skip(err)
			}
			var items, twice int
			const count = `
select (select count(*) from getwork.bare_request where state = 'assigned'), (select count(*) from getwork.bare_work),
  (select count(*) - count(distinct item) from getwork.bare_work)`
			if err == nil {
				err = b.conn.QueryRow(t.Context(), b.sql(count)).Scan(&clicks, &items, &twice)
			}
			if err != nil || items != 3*clicks || twice > 0 {
				t.Fatalf("%s: %d clicks have %d items, %d of them twice (%v)", what, clicks, items, twice, err)
			}
			return clicks
		}
		for _, script := range []string{fiveStatements, oneStatement} {
			clicks := 0
			for lasts := time.Second; clicks == 0; lasts *= 2 { // a busy machine may finish nothing in a second
				if lasts > time.Minute {
					t.Fatalf("%s: no click in half a minute", script[:12])
				}
				_, err := b.perClients(t.Context(), script, lasts)
				if errors.Is(err, errNothingDone) {
					err = nil
				}
				clicks = wrote(script[:12], err)
			}
		}
		for _, batch := range []int{1, 100} {
			_, err := b.together(t.Context(), 2, batch, time.Second)
			if clicks := wrote("set-based", err); clicks < 2*batch || clicks%batch != 0 {
				t.Errorf("two connections recorded and served %d clicks, %d at a time", clicks, batch)
			}
		}
		if err := b.reset(t.Context(), 1); err != nil {
			return err
		}
		if clicks := wrote("two commits", b.write(t.Context(), b.conn, 0, 1, true)); clicks != 1 {
			t.Errorf("two commits made %d clicks", clicks)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// When a line asks for it, each connection gets one message of the requested size and nothing after it.
func TestRawTCP(t *testing.T) {
	t.Parallel()
	commands, in := io.Pipe()
	out, answers := io.Pipe()
	ended := make(chan error, 1)
	const n, size = 9, 50
	go func() { ended <- RawTCP(commands, answers, n, size) }()
	said := bufio.NewScanner(out)
	said.Scan()
	var conns []net.Conn
	for range n {
		c, err := net.Dial("tcp", said.Text())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	if said.Scan(); said.Text() != "ready" {
		t.Fatalf("it says %q", said.Text())
	}
	fmt.Fprintln(in, "send")
	for _, c := range conns {
		if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, c := range conns {
		if rest, _ := io.ReadAll(c); len(rest) > 0 {
			t.Errorf("%q came after a message", rest)
		}
	}
}

// It ends when its standard input does, even while it waits for connections.
func TestRawTCPEnds(t *testing.T) {
	t.Parallel()
	commands, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- RawTCP(commands, io.Discard, 5, 1) }()
	in.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestRawPush(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("measures a process: not with -short")
	}
	e := &Env{Binary: cluster.Binary(t), Log: t.Logf}
	if took, err := e.rawPush(t.Context(), 20, 300); err != nil || took <= 0 {
		t.Errorf("%v, %v", took, err)
	}
}

// A node's URL may limit its pool, and neither pgx's single connections nor pgbench know such parameters.
func TestPoolParameters(t *testing.T) {
	t.Parallel()
	database, err := url.Parse(schematest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	parameters := database.Query()
	parameters.Set("pool_max_conns", "9")
	database.RawQuery = parameters.Encode()
	e := &Env{DatabaseURL: database.String()}
	conn, err := e.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := e.pgbench(t.Context(), "select 1;", 1, time.Second); err != nil && !errors.Is(err, errNoPgbench) {
		t.Error(err)
	}
}
