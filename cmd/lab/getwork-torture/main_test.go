package main

import (
	"path/filepath"
	"strings"
	"testing"

	"getwork/cmd/lab/torture"
	"getwork/cmd/lab/torture/history"
)

func TestCommandLine(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "history.jsonl")
	if err := history.WriteFile(kept, history.History{}); err != nil {
		t.Fatal(err)
	}
	again, err := torture.Options{Seed: 7, Without: []string{"clock"}, Isolation: "serializable", Flags: []string{"--no-listen"}}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"--help", exitClean, "kill -9 of a node"},
		{"--help", exitClean, "the last click"},
		{"--faults earthquake", exitUsage, "kill-run"},
		{"--without earthquake", exitUsage, "kill-run"},
		{"--faults none,kill", exitUsage, "none alone"},
		{"--scenario calm", exitUsage, "mixed"},
		{"--nodes 1", exitUsage, "--nodes"},
		{"--seeds 0", exitUsage, "--seeds"},
		{"--binary getwork --race", exitUsage, "--race"},
		{"--former " + kept + " --scenario mixed", exitUsage, "--scenario upgrade"},
		{"--former " + kept + "-not", exitUsage, "--former"},
		{"--nonsense", exitUsage, "--help"},
		{"--judge " + kept, exitClean, "violations   0"},
		{strings.NewReplacer("getwork-torture ", "", "'", "").Replace(again.Command()) + " --judge " + kept, exitClean, "violations   0"},
	} {
		var out strings.Builder
		if status := run(strings.Fields(c.args), &out, &out); status != c.status || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: status %d, want %d, and %q in:\n%s", c.args, status, c.status, c.says, out.String())
		}
	}
}
