package torture

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/schema/schematest/clock"
)

func sequence(t *testing.T, o Options, n int) (all []planned) {
	t.Helper()
	o, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	p := newPlan(o)
	for range n {
		all = append(all, p.next())
	}
	return all
}

func same(a, b planned) bool {
	return a.after == b.after && a.kind.Name == b.kind.Name && a.node == b.node && a.lasts == b.lasts && a.chance == b.chance
}

// The same seed gives the same faults, and another seed others; all kinds come, within their bounds.
func TestPlan(t *testing.T) {
	one, again, other := sequence(t, Options{Seed: 7}, 2000), sequence(t, Options{Seed: 7, Users: 3}, 2000), sequence(t, Options{Seed: 8}, 2000)
	kinds, differ := map[string]int{}, 0
	var sum time.Duration
	for i, f := range one {
		if !same(f, again[i]) {
			t.Fatalf("fault %d is %+v and then %+v", i, f, again[i])
		}
		if !same(f, other[i]) {
			differ++
		}
		kinds[f.kind.Name]++
		sum += f.after
		if f.lasts < f.kind.least || f.lasts > max(f.kind.least, f.kind.most) || f.node < 0 || f.node > 2 {
			t.Errorf("fault %d lasts %v on node %d", i, f.lasts, f.node)
		}
	}
	if differ < 1900 {
		t.Errorf("of 2000 faults of another seed only %d differ", differ)
	}
	o, err := Options{}.Complete()
	if err != nil || len(kinds) != len(o.Faults) {
		t.Errorf("only these came: %v, of %v (%v)", kinds, o.Faults, err)
	}
	if mean := sum / 2000; mean < 800*time.Millisecond || mean > 1200*time.Millisecond {
		t.Errorf("mean time between faults %v, want 1s", mean)
	}
}

// If the clock can't be set, its faults are left out with a message; a user who asks for them gets an error that says
// why.
func TestNoClock(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	said := ""
	o, err := Options{Log: func(format string, args ...any) { said += fmt.Sprintf(format, args...) }}.Complete()
	if err != nil || o.jumps() || len(o.Faults) != len(Options{}.kinds())-1 || !strings.Contains(said, "gcc") {
		t.Errorf("%v (%v); it says %q", o.Faults, err, said)
	}
	if _, err := (Options{Faults: []string{jumps}}).Complete(); !errors.Is(err, clock.ErrUnavailable) {
		t.Error(err)
	}
}

// The printed command that repeats a run has everything that its faults depend on.
func TestCommand(t *testing.T) {
	o := Options{Seed: 7, Nodes: 5, Every: 300 * time.Millisecond, Without: []string{jumps, "kill"}, Isolation: "serializable", Flags: []string{"--no-listen"}}
	o, err := o.Complete()
	if err != nil || o.jumps() || len(o.Faults) != len(Options{}.kinds())-2 {
		t.Fatal(err, o.Faults)
	}
	for _, want := range []string{"--seed 7 ", "--nodes 5 ", "--every 300ms ", "--scenario mixed ", "--faults kill-run,freeze,", "--isolation 'serializable'", "--serve='--no-listen'"} {
		if !strings.Contains(o.Command(), want) {
			t.Errorf("%s: want %s", o.Command(), want)
		}
	}
	if nothing, err := (Options{Without: Options{}.kinds()}).Complete(); err != nil || nothing.faults() {
		t.Errorf("without all kinds there are %v (%v)", nothing.Faults, err)
	}
	if all, _ := (Options{Seed: 7}).Complete(); all.jumps() && strings.Contains(all.Command(), "--faults") {
		t.Error(all.Command())
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"kind":      {Faults: []string{"earthquake"}},
		"without":   {Without: []string{"earthquake"}},
		"both":      {Without: []string{"clock"}, Faults: []string{"kill"}},
		"none":      {Faults: []string{None, "kill"}},
		"scenario":  {Scenario: "calm"},
		"one node":  {Nodes: 1},
		"race":      {Binary: "getwork", Race: true},
		"isolation": {Isolation: "snapshot"},
	} {
		if _, err := o.Complete(); err == nil {
			t.Errorf("%s: %+v is accepted", name, o)
		}
	}
	for _, s := range Scenarios {
		o, err := Options{Scenario: s.Name}.Complete()
		if err != nil {
			t.Error(err)
		}
		known := map[string]bool{}
		for _, j := range s.worked(o) {
			known[j.name] = true
		}
		for _, name := range s.tasks {
			if !known[name] {
				t.Errorf("scenario %s names no task %s", s.Name, name)
			}
		}
	}
}
