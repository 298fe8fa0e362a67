package torture_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"getwork/cmd/internal/torture"
)

// A run that ends in an error tells what the harness has found until then, and keeps the logs.
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
