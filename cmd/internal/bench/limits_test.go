package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest/timeout"
)

func TestWithoutPassword(t *testing.T) {
	t.Parallel()
	for database, want := range map[string]string{
		"postgres://tracy:secret@host/db?sslmode=disable":                 "postgres://tracy@host/db?sslmode=disable",
		"postgres://tracy@host/db?password=secret&application_name=a%20b": "postgres://tracy@host/db?application_name=a%20b",
		"postgres://tracy@host/db?sslmode=disable&password=secret":        "postgres://tracy@host/db?sslmode=disable&",
		"postgres://tracy@host/db":                                        "postgres://tracy@host/db",
		"host=host password=secret user=tracy":                            "host=host  user=tracy",
		`host=host password = 'a \' b' user=tracy`:                        "host=host  user=tracy",
	} {
		if got := withoutPassword(database); got != want {
			t.Errorf("%s: %q", database, got)
		}
	}
}

// TestBareLimits runs each of the limits for a second, and checks what they wrote.
func TestBareLimits(t *testing.T) {
	t.Parallel()
	err := testEnv(t).onBare(t.Context(), 300_000, func(b *bare) error {
		wrote := func(what string, err error) {
			t.Helper()
			if errors.Is(err, errNoPgbench) {
				t.Skip(err)
			}
			var clicks, items, twice int
			const count = `
select (select count(*) from getwork.bare_request where state = 'assigned'), (select count(*) from getwork.bare_work),
  (select count(*) - count(distinct item) from getwork.bare_work)`
			if err == nil {
				err = b.conn.QueryRow(t.Context(), b.sql(count)).Scan(&clicks, &items, &twice)
			}
			if err != nil || clicks == 0 || items != 3*clicks || twice > 0 {
				t.Errorf("%s: %d clicks have %d items, %d of them twice (%v)", what, clicks, items, twice, err)
			}
		}
		for _, script := range []string{fiveStatements, oneStatement} {
			_, err := b.perClients(t.Context(), script, timeout.Scale(time.Second))
			wrote(script[:12], err)
		}
		_, err := b.setBased(t.Context(), time.Second)
		wrote("set-based", err)
		if err := b.reset(t.Context(), 1); err != nil {
			return err
		}
		wrote("two commits", b.write(t.Context(), b.conn, 0, 1, true))
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
