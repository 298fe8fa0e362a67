package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The test's executable is River's client, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == riverCommand {
		os.Exit(riverClient())
	}
	os.Exit(m.Run())
}

// private starts a server for one test, and checks at the end that nothing was left on it.
func private(t *testing.T) string {
	t.Helper()
	url, stop, err := startPrivate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t.Logf) })
	t.Cleanup(func() {
		if left := schemas(t, url); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return url
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func schemas(t *testing.T, url string) []string {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, _ := conn.Query(context.Background(), `select nspname from pg_namespace where nspname like 'getwork_peers%'`)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// folders returns the folders that a run makes for itself and must remove.
func folders(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "getwork-peers-npm-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// measured runs the command on a server and returns its report.
func measured(t *testing.T, url string) report {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var out, errs bytes.Buffer
	if status := run([]string{"--database-url", url, "--rounds", "2", "--seconds", "0.2", "--json"}, &out, &errs); status != exitDone {
		t.Fatalf("exit status %d: %s", status, errs.String())
	}
	if left := folders(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	return r
}

// complete checks that a peer has all of its figures, each with one value per round.
func complete(t *testing.T, r report, p peer) {
	t.Helper()
	want := map[kind][]string{
		rate:    {"", clientCPU, databaseCPU},
		latency: {"_p50", "_p99"},
		idle:    {clientCPU, databaseCPU},
	}
	for _, m := range p.measurements {
		for _, part := range want[m.kind] {
			key := p.key + "_" + m.key + part
			i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Key == key })
			if i < 0 {
				t.Errorf("no figure %s", key)
				continue
			}
			if f := r.Figures[i]; len(f.Values) != 2 || slices.Min(f.Values) <= 0 {
				t.Errorf("%s: %v %s", key, f.Values, f.Unit)
			}
		}
	}
}

func TestEveryPeer(t *testing.T) {
	if m, err := installModules(t.Context()); errors.Is(err, errNoNode) || errors.Is(err, errNoNPM) || errors.Is(err, errOldNode) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	} else {
		m.remove(t.Logf)
	}
	r := measured(t, private(t))
	var none modules
	for _, p := range []peer{riverQueue(), none.graphile(), none.boss()} {
		complete(t, r, p)
	}
	for _, key := range []string{"bulk_rate", "bulk_cpu", "bulk_agent_rate"} {
		if i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Key == "getwork_"+key }); i < 0 || len(r.Figures[i].Values) != 2 {
			t.Errorf("getwork has no %s of two rounds", key)
		}
	}
	for _, name := range []string{"graphile-worker", "pg-boss", "pg", "node"} {
		if r.Facts.Versions[name] == "" {
			t.Errorf("no version of %s in %v", name, r.Facts.Versions)
		}
	}
	if r.Facts.Settings["fsync"] != "on" {
		t.Errorf("settings: %v", r.Facts.Settings)
	}
	var table bytes.Buffer
	if err := r.table(&table); err != nil || !strings.Contains(table.String(), "µs/job") {
		t.Errorf("%v: %s", err, table.String())
	}
	t.Log(table.String())
}

func TestWithoutNodeOnlyRiverIsMeasured(t *testing.T) {
	url := private(t)
	t.Setenv("PATH", t.TempDir())
	r := measured(t, url)
	complete(t, r, riverQueue())
	for _, f := range r.Figures {
		if !strings.HasPrefix(f.Key, "river_") {
			t.Errorf("a figure of %s", f.Key)
		}
	}
	// Nor is there a go to build getwork with.
	if len(r.Notes) != 2 || !strings.Contains(r.Notes[0], errNoNode.Error()) || !strings.Contains(r.Notes[1], "getwork itself is left out") {
		t.Errorf("notes: %q", r.Notes)
	}
}

func TestNothingIsLeftWhenInterrupted(t *testing.T) {
	url := private(t)
	t.Setenv("PATH", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &bench{rounds: 1, seconds: 60, log: t.Logf}
	ended := make(chan error, 1)
	go func() {
		_, err := b.run(ctx, url)
		ended <- err
	}()
	conn := connect(t, url)
	for inserting := false; !inserting; {
		const anyInsert = `select exists (select from pg_stat_activity where query ~ 'INSERT INTO' and pid <> pg_backend_pid())`
		if err := conn.QueryRow(t.Context(), anyInsert).Scan(&inserting); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("ended by itself: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("goes on")
	}
}

// Both the client's count and the database's are checked.
func TestLostAndRepeatedJobsAreNoticed(t *testing.T) {
	url := private(t)
	ctx := t.Context()
	b := &bench{url: url, log: t.Logf}
	schema, drop, err := b.makeSchema(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer drop()
	conn := connect(t, url)
	for _, statement := range []string{"create table %s.river_job (state text, attempt int)", "insert into %s.river_job values ('completed', 1), ('completed', 1)"} {
		if _, err := conn.Exec(ctx, fmt.Sprintf(statement, schema)); err != nil {
			t.Fatal(err)
		}
	}
	p := riverQueue()
	if err := b.check(ctx, p, schema, answer{Inserted: 2, Once: 2}); err != nil {
		t.Errorf("two of two: %v", err)
	}
	for name, done := range map[string]answer{
		"the client lost one":          {Inserted: 2, Once: 1},
		"the client worked one again":  {Inserted: 2, Once: 1, Twice: 1},
		"the database has fewer":       {Inserted: 3, Once: 3},
		"the database has one of more": {Inserted: 1, Once: 1},
	} {
		if err := b.check(ctx, p, schema, done); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
	if _, err := conn.Exec(ctx, "update "+schema+".river_job set attempt = 2"); err != nil {
		t.Fatal(err)
	}
	if err := b.check(ctx, p, schema, answer{Inserted: 2, Once: 2}); err == nil {
		t.Error("the database tried twice: not noticed")
	}
}

func TestWrongUse(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--rounds", "0"}, exitUsage, "--rounds"},
		{[]string{"--seconds", "0"}, exitUsage, "--seconds"},
		{[]string{"river"}, exitUsage, `"river"`},
		{[]string{"--database-url", "postgres://127.0.0.1:1/none"}, exitFailed, "connect to the database"},
		{[]string{"--help"}, exitDone, "-database-url"},
	} {
		var out, errs bytes.Buffer
		if status := run(test.args, &out, &errs); status != test.status || !strings.Contains(errs.String(), test.says) {
			t.Errorf("%v: exit status %d, %s", test.args, status, errs.String())
		}
	}
}

func TestPercentile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for percent, want := range map[int]float64{1: 1, 50: 3, 80: 4, 99: 5, 100: 5} {
		if got := percentile(values, percent); got != want {
			t.Errorf("%d %%: %v, want %v", percent, got, want)
		}
	}
}
