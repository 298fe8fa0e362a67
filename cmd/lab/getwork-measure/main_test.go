package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) {
	code := schematest.Main(m)
	cluster.Clean()
	os.Exit(code)
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--help"}, exitMeasured, "query-login"},
		{[]string{"--rounds", "0"}, exitUsage, "--rounds must be from 1"},
		{[]string{"--only", "clicks,nonsense"}, exitUsage, "idle-click"},
		{[]string{"--binary", "/nowhere/getwork"}, exitUsage, "--binary"},
		{[]string{"--write", t.TempDir()}, exitUsage, "such as docs"},
		{[]string{"--nonsense"}, exitUsage, "--help"},
	} {
		var out, errs bytes.Buffer
		if status := run(c.args, &out, &errs); status != c.status || !strings.Contains(out.String()+errs.String(), c.says) {
			t.Errorf("%v: status %d, %s%s", c.args, status, out.String(), errs.String())
		}
	}
}

// The flags say what is measured.
func TestWanted(t *testing.T) {
	usual := []string{"clicks", "idle-click", "push", "bulk", "nodes", "busy", "history", "waiting", "memory", "idle", "listeners", "wrap"}
	for name, c := range map[string]struct {
		flags flags
		want  []string
	}{
		"nothing": {want: usual},
		"some":    {flags: flags{Flags: bench.Flags{Only: []string{"growth", "push"}}}, want: []string{"push", "growth"}},
		"a page":  {flags: flags{Write: "docs", Small: true}, want: append(slices.Clone(usual), "growth")},
	} {
		all, err := c.flags.wanted()
		var got []string
		for _, m := range all {
			got = append(got, m.Name)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v (%v)", name, got, c.want, err)
		}
	}
}

// TestMeasures makes a measurement with the program as it is, which is also the other end of the raw TCP limit, and writes the page.
func TestMeasures(t *testing.T) {
	schematest.Thorough(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "getwork-measure")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	page := filepath.Join(dir, "benchmarks.md")
	if err := os.WriteFile(page, []byte("before\n<!-- table -->\n<!-- /table -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	measure := exec.CommandContext(t.Context(), program, "--small", "--rounds", "1", "--only", "memory", "--write", dir, "--binary", cluster.Binary(t), "--database-url", schematest.Empty(t))
	out, err := measure.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(page)
	for _, want := range []string{"before", "getwork-measure --small --database-url URL --only memory --rounds 1; 1 rounds, with small numbers", "| A node's memory for each of 1 000 waiting users", "after"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q (%v):\n%s", want, err, text)
		}
	}
}
