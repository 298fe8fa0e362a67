package cputime

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// skipElsewhere skips tests of what only /proc has.
func skipElsewhere(t *testing.T) {
	t.Helper()
	if _, err := Process(os.Getpid()); errors.Is(err, ErrUnknown) {
		t.Skip(err)
	}
}

// Process counts a few ticks of work, and no more than that.
func TestProcess(t *testing.T) {
	skipElsewhere(t)
	pid := os.Getpid()
	ticks := func() time.Duration {
		s, err := readStat(pid)
		if err != nil {
			t.Fatal(err)
		}
		return s.own
	}
	before, err := Process(pid)
	began, by := ticks(), time.Duration(0)
	for err == nil && by < 300*time.Millisecond { // some work
		by = ticks() - began
	}
	after, err := Process(pid)
	if used := after - before; err != nil || (used-by).Abs() > 60*time.Millisecond {
		t.Errorf("%v by the fine clock, %v by ticks, %v", used, by, err)
	}
	if _, err := Process(1 << 30); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("a process that does not exist: %v", err)
	}
}

// Server counts a second of computing, even after the connection's process has ended.
func TestServer(t *testing.T) {
	skipElsewhere(t)
	conn, err := pgx.Connect(t.Context(), schematest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	postmaster, err := Postmaster(t.Context(), conn)
	if want := schematest.Server(t).PID(); err != nil || postmaster != want {
		t.Fatalf("the server's process is %d, want %d, %v", postmaster, want, err)
	}
	before, err := Server(postmaster)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for n := 0; n < 10 || time.Since(began) < time.Second; n++ {
		if _, err := conn.Exec(t.Context(), `select count(*) from generate_series(1, 200000)`); err != nil {
			t.Fatal(err)
		}
	}
	_ = conn.Close(t.Context())
	after, err := Server(postmaster)
	if used := after - before; err != nil || used < 100*time.Millisecond || used > 3*time.Second+time.Since(began) {
		t.Errorf("a second of computing is counted as %s of the database's CPU, %v", used, err)
	}
}
