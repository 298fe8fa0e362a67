package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"getwork/assign/audit"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/command"
	"getwork/schema/schematest"
)

// Verify and export speak by their exit status and their lines.
func TestAudit(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	var log strings.Builder
	w := &audit.Writer{Node: "n1", Log: slog.New(slog.NewJSONHandler(&log, nil)), DB: db}
	act := func(rows int) {
		t.Helper()
		for range rows {
			if err := w.WriteAlone(audit.WithActor(t.Context(), audit.Actor{User: "mia\u202e"}), audit.Act{Act: "x", Detail: map[string]string{"a": "<&>" + strings.Repeat("🎉", 900)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	logged := func() string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(name, []byte(log.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	called := func(want int, says string, args ...string) string {
		t.Helper()
		var out, errs strings.Builder
		if status := run(append(append([]string{"audit"}, args...), "--database-url", url), &out, &errs); status != want || !strings.Contains(out.String()+errs.String(), says) {
			t.Errorf("%s: status %d, want %d and %q: %s%s", args, status, want, says, &out, &errs)
		}
		return out.String()
	}
	called(command.ExitDone, "the audit is empty", "verify")
	act(5)
	called(command.ExitDone, "5 rows, 1 to 5, as they were written; the last has the hash ", "verify")
	called(command.ExitDone, "5 rows, 1 to 5, as they were written; 5 of them are in the log", "verify", "--log", logged(), "--log", os.DevNull)
	called(command.ExitUsage, "no line of it is about the audit", "verify", "--log", os.DevNull)
	called(command.ExitUsage, "no such file", "verify", "--log", "/nowhere")
	called(command.ExitUsage, "is no time", "export", "--cut", "yesterday")
	called(command.ExitUsage, "must be a time in the past", "export", "--cut", "2999-01-01")

	if lines := called(command.ExitDone, "", "export"); strings.Count(lines, "\n") != 5 {
		t.Errorf("exported:\n%s", lines)
	}
	called(command.ExitDone, "nothing was cut", "export", "--cut", "2001-01-01")
	lines := called(command.ExitDone, "5 rows, 1 to 5, exported and removed; row 6 says so", "export", "--cut", time.Now().Add(-time.Microsecond).Format(time.RFC3339Nano))
	for line := range strings.Lines(lines) {
		var r audit.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Sum() != r.Hash || *r.Actor != "mia\u202e" { // the rows fill several buffers, whose ends cut characters
			t.Errorf("exported %s, %v", line, err)
		}
	}
	act(2)
	called(command.ExitDone, "3 rows, 6 to 8", "verify", "--log", logged())

	exec(`alter table getwork.audit disable trigger all; update getwork.audit set actor = 'ada' where n = 7`)
	if found := called(command.ExitFailed, "1 finding, see above", "verify"); !strings.HasPrefix(found, "row 7: changed") || strings.Count(found, "\n") != 1 {
		t.Errorf("found:\n%s", found)
	}
	called(command.ExitFailed, "would remove the evidence", "export", "--cut", "2026-01-01")
	called(command.ExitDone, `"n":7`, "export")
	exec(`drop schema getwork cascade`)
	called(command.ExitFailed, "getwork migrate up", "verify")

	// A pipe does not say whether it has kept what is removed.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	var errs strings.Builder
	if status := run([]string{"audit", "export", "--cut", "2026-01-01", "--database-url", url}, write, &errs); status != command.ExitUsage || !strings.Contains(errs.String(), "into a file") {
		t.Errorf("into a pipe: status %d, %s", status, &errs)
	}
}

// The row about a cut is written by the command itself, and its line can join the log.
func TestAuditCutIntoAFile(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	w := &audit.Writer{Node: "n1", DB: db}
	if err := w.WriteAlone(context.Background(), audit.Act{Act: "x"}); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "old.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var errs strings.Builder
	if status := run([]string{"audit", "export", "--cut", time.Now().Format(time.RFC3339Nano), "--database-url", url}, file, &errs); status != command.ExitDone {
		t.Fatalf("status %d: %s", status, &errs)
	}
	kept, err := os.ReadFile(file.Name())
	if err != nil || strings.Count(string(kept), "\n") != 1 {
		t.Errorf("kept: %s, %v", kept, err)
	}
	log, err := audit.ReadLog(strings.NewReader(errs.String()))
	if err != nil || log.Lines != 1 {
		t.Errorf("logged: %s, %v", &errs, err)
	}
	var by, node, detail string
	if err := db.QueryRow(t.Context(), `select by, node, detail->>'rows' from getwork.audit where act = 'audit.cut'`).Scan(&by, &node, &detail); err != nil || fmt.Sprint(by, node, detail) != "directdirect1" {
		t.Errorf("the row about it: %s %s %s, %v", by, node, detail, err)
	}
}

// What two nodes did at the same time is one chain, which both have logged; one of them was killed. Written anew by the owner of
// the tables it seems right, but not beside the nodes' logs.
func TestAuditOfNodes(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	nodes := []*cluster.Node{
		cluster.Start(t, 1, cluster.Options{DatabaseURL: url})[0],
		cluster.Start(t, 1, cluster.Options{DatabaseURL: url, Args: []string{"--log-format", "json"}})[0],
	}
	var g errgroup.Group
	for i := range 16 {
		g.Go(func() error {
			name := fmt.Sprintf("task-%d", i)
			return nodes[i%2].Client("boss").CreateTask(t.Context(), map[string]any{"name": name, "query": nil, "title": "n=1 msg=audit"})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	nodes[0].Kill()
	args := []string{"audit", "verify", "--database-url", url}
	verify := func(want int, says string, args ...string) {
		t.Helper()
		var out, errs strings.Builder
		if status := run(args, &out, &errs); status != want || !strings.Contains(out.String(), says) {
			t.Errorf("%s: status %d, want %d and %q: %s%s", args, status, want, says, &out, &errs)
		}
	}
	for i, n := range nodes {
		name := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.WriteFile(name, []byte(n.Output()), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--log", name)
	}
	verify(command.ExitDone, "16 rows, 1 to 16, as they were written; 16 of them are in the log", args...)

	if _, err := db.Exec(t.Context(), `alter table getwork.audit disable trigger all; truncate getwork.audit; update getwork.audit_head set n = 0, hash = decode(repeat('00', 32), 'hex')`); err != nil {
		t.Fatal(err)
	}
	if err := nodes[1].Client("boss").CreateTask(t.Context(), map[string]any{"name": "innocent", "query": nil}); err != nil {
		t.Fatal(err)
	}
	verify(command.ExitDone, "1 row, 1 to 1, as they were written", "audit", "verify", "--database-url", url)
	verify(command.ExitFailed, "row 1: not as it was logged", args...)
	verify(command.ExitFailed, "rows 2 to 16: missing at the end", args...)
}
