package torture_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"getwork/cmd/lab/torture"
)

// A run that ends in an error reports what the harness has found until then, and keeps the logs.
func TestAnErrorKeepsWhatWasFound(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own: not with -short")
	}
	program := filepath.Join(t.TempDir(), "getwork")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 'panic: planted'; exit 2\n"), 0o755); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	report, err := torture.Run(t.Context(), torture.Options{Binary: program, Faults: []string{torture.None}, Log: t.Logf})
	if err == nil || !strings.Contains(err.Error(), "does not start") {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.Unjudged(&text); err != nil || !strings.Contains(text.String(), "panic: planted") || !strings.Contains(text.String(), report.Out) {
		t.Errorf("it says (%v):\n%s", err, text.String())
	}
	if log, err := os.ReadFile(filepath.Join(report.Out, "node-0.log")); err != nil || !strings.Contains(string(log), "planted") {
		t.Errorf("the log of a node: %q, %v", log, err)
	}
}

// A node for which a busy database has no time is started again, as a service manager does, but not for ever.
func TestStartsThatAreTooLate(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own: not with -short")
	}
	t.Parallel()
	dir := t.TempDir()
	program, starts := filepath.Join(dir, "getwork"), filepath.Join(dir, "starts")
	script := "#!/bin/sh\necho start >>" + starts + "\necho \"can't connect to the database: failed to receive message: timeout\"; exit 1\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	_, err := torture.Run(t.Context(), torture.Options{Binary: program, Nodes: 2, Faults: []string{torture.None}, Out: filepath.Join(dir, "out"), Log: t.Logf})
	if err == nil || !strings.Contains(err.Error(), "does not start") {
		t.Fatal(err)
	}
	text, err := os.ReadFile(starts)
	if n := strings.Count(string(text), "start"); err != nil || n < 4 {
		t.Errorf("started %d times: %v", n, err)
	}
}
