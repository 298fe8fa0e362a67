package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/node"
	"getwork/schema/postgres"
	"getwork/schema/schematest"
)

// A node with a PostgreSQL of its own that is killed with -9 leaves no server behind, and the next start finds the work
// that was assigned. Ranking queries may read the schema public, and of getwork's schema only the view blocked.
func TestPrivatePostgres(t *testing.T) {
	parent, err := os.MkdirTemp("", "getwork-private-test-") // the account that PostgreSQL runs as can't enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "data")
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: e2e.Text("GETWORK_LISTEN_DATABASE_URL=postgres://127.0.0.1:1/another")}
	c.Run(2, e2e.Text("leave out --listen-database-url"), "serve", "--private-postgres", "--data-dir", dir)
	c.Run(2, e2e.Text("leave it out"), "serve", "--database-url", "postgres://127.0.0.1:1/another", "--data-dir", dir)
	start := func() *cluster.Node {
		t.Helper()
		return cluster.Start(t, 1, cluster.Options{Args: []string{"--private-postgres", "--data-dir", dir},
			Env: e2e.Text("PGSERVICE=nowhere", "PGCHANNELBINDING=require")})[0] // they are for another server
	}
	n := start()
	ctx := t.Context()
	if err := n.Client("boss").CreateTask(ctx, map[string]any{"name": "numbers", "query": "select i as item from generate_series(1, 9) i"}); err != nil {
		t.Fatal(err)
	}
	err = n.Client("boss").CreateTask(ctx, map[string]any{"name": "peeps", "query": "select item from getwork.work"})
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("a query that reads getwork's tables: %v", err)
	}
	// A query can leave the query role. Its login may then do no more than own getwork's tables.
	for task, statement := range map[string]string{
		"reads-files":     `select pg_read_file('PG_VERSION')`,
		"reads-passwords": `select rolpassword from pg_authid`,
		"writes-files":    `select lo_export(lo_from_bytea(0, 'x'), '/tmp/getwork-was-here')`,
		"reads-config":    `select pg_reload_conf()`,
	} {
		leaves := "with out as materialized (select set_config('role', 'none', true)) select left(query_to_xml($q$" + statement + "$q$, true, true, '')::text, 100) as item from out"
		if err := n.Client("boss").CreateTask(ctx, map[string]any{"name": task, "query": leaves}); err != nil {
			t.Fatal(err)
		}
		r, _, err := n.Client("ann").GetWork(ctx, task, 1, "Prefer", "wait=60")
		runs, unread := n.Client("boss").Runs(ctx, task)
		if err != nil || unread != nil || r.State != assign.Failed || len(runs) == 0 || runs[0].Error == nil || !strings.Contains(*runs[0].Error, "permission denied") {
			t.Errorf("a query that %s: %s %+v (%v, %v)", task, r.State, runs, err, unread)
		}
	}
	r, _, err := n.Client("ann").GetWork(ctx, "numbers", 2, "Prefer", "wait=60")
	if err != nil || r.State != assign.Assigned {
		t.Fatalf("ann is %s (%v)", r.State, err)
	}
	n.Kill()
	n = start() // waits until the former server has ended
	p, err := n.Client("ann").Pipeline(ctx)
	if err != nil || len(p.Work) != 2 {
		t.Errorf("after kill -9 and a new start ann holds %d (%v), want 2", len(p.Work), err)
	}
	if err := n.Terminate(); err != nil {
		t.Errorf("terminated: %v", err)
	}
	server, err := postgres.Start(ctx, postgres.Config{Dir: dir})
	if err != nil {
		t.Fatalf("the server was left running, or its data is damaged: %v", err)
	}
	defer server.Stop(ctx)
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var held int
	if err := conn.QueryRow(ctx, `select count(*) from getwork.work where state = 'held'`).Scan(&held); err != nil || held != 2 {
		t.Errorf("%d held in the tables (%v), want 2", held, err)
	}
}

// A database that does not answer is reported once, with what to do.
func TestServeWithoutDatabase(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close() // now nothing listens there
	for _, given := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"migrate", "status"}} {
		var out, errs strings.Builder
		if status := run(append(given, "--database-url", "postgres://getwork@"+address+"/getwork"), &out, &errs); status != command.ExitFailed {
			t.Errorf("%s: exit status %d, want %d", given, status, command.ExitFailed)
		}
		if said := errs.String(); strings.Count(said, "connection refused") != 1 || !strings.Contains(said, "check the URL (--database-url") {
			t.Errorf("%s says:\n%s", given, said)
		}
	}
}

// A node of an older version does not start on a newer schema, and touches nothing there; one that runs goes on. The message says
// both ways out.
func TestServeRefusesANewerSchema(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `update getwork.version set version = 999`); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, args := range [][]string{nil, {"--no-migrate"}} {
		n := node.New(node.Options{Binary: cluster.Binary(t), DatabaseURL: url, Args: args})
		t.Cleanup(n.Kill)
		if err := n.Start(t.Context()); err == nil {
			t.Errorf("serve %s starts", args)
		}
		said[fmt.Sprint("serve ", args)] = n.Output()
	}
	if status := run([]string{"migrate", "down", "--to", "0", "--database-url", url}, io.Discard, io.Discard); status != command.ExitUsage {
		t.Errorf("everything is to be removed without --yes: exit status %d, want %d", status, command.ExitUsage)
	}
	for _, way := range []string{"up", "down --to 0 --yes"} {
		var out, errs strings.Builder
		args := append(append([]string{"migrate"}, strings.Fields(way)...), "--database-url", url)
		if status := run(args, &out, &errs); status != command.ExitFailed {
			t.Errorf("%s: exit status %d, want %d", args, status, command.ExitFailed)
		}
		said["migrate "+way] = errs.String()
	}
	for what, text := range said {
		if !strings.Contains(text, "is at version 999") || !strings.Contains(text, "run the newer getwork, or go back with its `getwork migrate down`") {
			t.Errorf("%s says:\n%s", what, text)
		}
	}
	var version int
	if err := conn.QueryRow(t.Context(), `select version from getwork.version`).Scan(&version); err != nil || version != 999 {
		t.Errorf("version %d, %v", version, err)
	}
}

// A command line that can't be served is refused at once, with exit status 2 and one line that says what to do.
func TestServeRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"no database":     {nil, "--database-url"},
		"two of them":     {[]string{"--private-postgres", "--database-url", "postgres://x"}, "one of them"},
		"not loopback":    {[]string{"--database-url", "postgres://x", "--listen", "0.0.0.0:0"}, "loopback"},
		"every interface": {[]string{"--database-url", "postgres://x", "--listen", ":0"}, "loopback"},
		"no port":         {[]string{"--database-url", "postgres://x", "--listen", "127.0.0.1"}, "HOST:PORT"},
		"no runs":         {[]string{"--database-url", "postgres://x", "--max-runs", "0"}, "--max-runs"},
		"two framers":     {[]string{"--database-url", "postgres://x", "--frame-ancestors", "http://a http://b"}, "--frame-ancestors"},
		"no LISTEN":       {[]string{"--database-url", "postgres://x", "--pooled"}, "--listen-database-url"},
		"schema's name":   {[]string{"--database-url", "postgres://x", "--schema", "a b"}, "schema"},
		"no such flag":    {[]string{"--nope"}, "--help"},
	} {
		t.Setenv("DATABASE_URL", "")
		var out, errs strings.Builder
		if status := run(append([]string{"serve"}, tt.args...), &out, &errs); status != command.ExitUsage {
			t.Errorf("%s: exit status %d, want %d", name, status, command.ExitUsage)
		}
		if said := errs.String(); !strings.Contains(said, tt.says) || out.Len() > 0 {
			t.Errorf("%s: says %q, want something of %q", name, said, tt.says)
		}
	}
}
