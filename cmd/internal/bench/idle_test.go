package bench

import (
	"errors"
	"os"
	"testing"
	"time"
)

// skipElsewhere skips what only /proc tells.
func skipElsewhere(t *testing.T) {
	t.Helper()
	if _, err := cpuOf(os.Getpid()); errors.Is(err, errNoCPU) {
		t.Skip(err)
	}
}

func TestIdle(t *testing.T) { // not beside others, which use the same server
	skipElsewhere(t)
	figures, err := idleOf(t.Context(), localEnv(t), 4*time.Second) // a node looks around once in three, at least
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != 2 {
		t.Fatalf("%d figures", len(figures))
	}
	// A node that looks around every two seconds uses something, and not all of a processor.
	if node := figures[0]; len(node.Values) != 1 || node.Values[0] <= 0 || node.Values[0] > 500 {
		t.Errorf("figure %+v", node)
	}
	if database := figures[1]; len(database.Values) != 1 || database.Values[0] > 500 {
		t.Errorf("figure %+v", database)
	}
}

// Both clocks count the same.
func TestRanFor(t *testing.T) {
	skipElsewhere(t)
	pid := os.Getpid()
	read := func() (fine, ticks time.Duration) {
		fine, err := ranFor(pid)
		if err != nil {
			t.Fatal(err)
		}
		if ticks, err = cpuOf(pid); err != nil {
			t.Fatal(err)
		}
		return fine, ticks
	}
	fine, ticks := read()
	more, moreTicks := fine, ticks
	for moreTicks-ticks < 300*time.Millisecond { // this is work
		more, moreTicks = read()
	}
	if by := (more - fine) - (moreTicks - ticks); by.Abs() > 60*time.Millisecond {
		t.Errorf("%v on one clock, %v on the other", more-fine, moreTicks-ticks)
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	skipElsewhere(t)
	figures, err := memoryOf(t.Context(), localEnv(t), 50)
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != 2 {
		t.Fatalf("%d figures", len(figures))
	}
	for _, f := range figures {
		if len(f.Values) != 1 || f.Values[0] <= 0 {
			t.Errorf("figure %+v", f)
		}
	}
	if limit := figures[0].Limit; limit == nil || len(limit.Values) != 1 || limit.Values[0] <= 0 {
		t.Errorf("limit %+v", limit)
	}
}
