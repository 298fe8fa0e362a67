package checker

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"getwork/cmd/lab/torture/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The checker must not depend on the code that it judges.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(p, "getwork/") && !strings.HasPrefix(p, "getwork/cmd/lab/torture/") || p == "getwork" {
			t.Errorf("the checker depends on %s", p)
		}
	}
}

var file = flag.String("torture.history", "", "judge this file of a run's history")

// TestHistory judges a file, such as one that a run in CI has left.
func TestHistory(t *testing.T) {
	if *file == "" {
		t.Skip("-torture.history names no file")
	}
	if _, err := os.Stat(*file); err != nil {
		t.Fatal(err)
	}
	h, err := history.ReadFile(*file)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r := Judge(h, Config{})
	t.Logf("%d entries in %v, %d undecided, judged: %v", len(h.Entries), time.Since(began), r.Undecided, r.Judged)
	for _, v := range r.Violations {
		t.Error(v)
	}
}
