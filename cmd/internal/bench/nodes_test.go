package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestNodes(t *testing.T) {
	e := testEnv(t)
	if err := e.FindServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, leave, err := e.stage(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	pids := []int{s.nodes.PID(0), s.nodes.PID(1)}
	if pids[0] == pids[1] || s.nodes.URL(0) == s.nodes.URL(1) {
		t.Error("the two nodes are one")
	}
	if _, err := cpuOf(pids[0]); errors.Is(err, errNoCPU) {
		t.Skip(err)
	}
	before, err := e.usage(s.nodes)
	if err != nil {
		t.Fatal(err)
	}
	if before.database == 0 || before.nodes == 0 || before.self == 0 {
		t.Errorf("the CPU times are %+v", before)
	}
	// A second of computing is seen in the server's time, also after the connection's process has ended; and no less is computed
	// where the machine stands still meanwhile.
	conn, err := e.Connect(t.Context())
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
	after, err := e.usage(s.nodes)
	if err != nil {
		t.Fatal(err)
	}
	if used := after.since(before).database; used < 100*time.Millisecond || used > 3*time.Second {
		t.Errorf("a second of computing is seen as %s of the database's CPU", used)
	}
	leave()
	for _, pid := range pids {
		if _, err := timesOf(pid); err == nil {
			t.Errorf("the node %d still runs", pid)
		}
	}
	if left := schemasOf(t, e); len(left) > 0 {
		t.Errorf("schemas are left behind: %v", left)
	}
}

// schemasOf are those of a bench that are there.
func schemasOf(t *testing.T, e *Env) []string {
	t.Helper()
	conn, err := e.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select nspname::text from pg_namespace where starts_with(nspname, $1)`, schemaPrefix)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestLeaveAfterCancel: a Ctrl-C ends the context that everything was made with.
func TestLeaveAfterCancel(t *testing.T) {
	e := testEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	pid := s.nodes.PID(0)
	if before := schemasOf(t, e); len(before) != 1 {
		t.Fatalf("there are the schemas %v", before)
	}
	cancel()
	leave()
	if _, err := timesOf(pid); err == nil {
		t.Errorf("the node %d still runs", pid)
	}
	if left := schemasOf(t, e); len(left) > 0 {
		t.Errorf("schemas are left behind: %v", left)
	}
}

func TestNodeThatCanNotStart(t *testing.T) {
	e := testEnv(t)
	_, err := e.Start(t.Context(), "getwork_bench_x", 1, "--auth", "nonsense")
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error is %v, and does not tell what the node said", err)
	}
}

func TestNodeURL(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://host/db":          "postgres://host/db?n=1",
		"postgres://host/db?sslmode=": "postgres://host/db?sslmode=&n=1",
		"host=here dbname=db":         "host=here dbname=db n=1",
	} {
		if got := withParameter(url, "n", "1"); got != want {
			t.Errorf("%s becomes %s, want %s", url, got, want)
		}
	}
	e := testEnv(t)
	if url, err := e.nodeURL(t.Context(), 1); err != nil || url != e.DatabaseURL {
		t.Errorf("one node is given %s, %v", url, err)
	}
	if _, err := e.nodeURL(t.Context(), 10_000); err == nil || !strings.Contains(err.Error(), "max_connections") {
		t.Errorf("ten thousand nodes: %v", err)
	}
}
