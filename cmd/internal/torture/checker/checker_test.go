package checker

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"getwork/cmd/internal/torture/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The checker must not depend on the code that it judges.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(p, "getwork/") && !strings.HasPrefix(p, "getwork/cmd/internal/torture/") || p == "getwork" {
			t.Errorf("the checker depends on %s", p)
		}
	}
}

var (
	cases = flag.Int("torture.cases", 8, "the number of histories for each mutation")
	file  = flag.String("torture.history", "", "judge this file of a run's history")
)

// patience is the config for simulations, in which nothing is broken.
var patience = Config{PushWithin: time.Second, Linearize: time.Minute}

// A clean history has no violation, whatever happened in it, even if the database's clock was set now and then.
func TestCleanHistories(t *testing.T) {
	t.Parallel()
	for name, jumps := range map[string]bool{"": false, "jumps": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judged := map[string]int{}
			for seed := range uint64(5 * *cases) {
				r := Judge(simulate(seed, 600, jumps), patience)
				for _, v := range r.Violations {
					t.Errorf("seed %d: %v", seed, v)
				}
				if r.Undecided > 0 {
					t.Errorf("seed %d: %d items were left undecided", seed, r.Undecided)
				}
				for what, n := range r.Judged {
					judged[what] += n
				}
				if t.Failed() {
					return
				}
			}
			t.Log("judged:", judged)
		})
	}
}

// A fault in a clean history is found.
func TestMutations(t *testing.T) {
	t.Parallel()
	tryAll(t, false, func(name string) float64 { return mutations[name].least })
}

// The same holds if the clock was set, except for faults in times of the tables, which then say less.
func TestMutationsUnderAClockThatWasSet(t *testing.T) {
	t.Parallel()
	tryAll(t, true, func(name string) float64 {
		if least, timed := underJumps[name]; timed {
			return least
		}
		return mutations[name].least
	})
}

// tryAll tries the mutations in parallel.
func tryAll(t *testing.T, jumps bool, least func(name string) float64) {
	if testing.Short() {
		t.Skip("mutates hundreds of histories")
	}
	var total, all atomic.Int64
	t.Cleanup(func() { t.Logf("found %d of %d mutations", total.Load(), all.Load()) })
	for name, m := range mutations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, n := m.try(t, name, least(name), jumps)
			total.Add(int64(found))
			all.Add(int64(n))
		})
	}
}

// try applies one mutation to some histories, and expects a minimum share of them to be found.
func (m mutated) try(t *testing.T, name string, least float64, jumps bool) (found, n int) {
	rules := map[Rule]int{}
	for seed := uint64(1000); n < *cases && seed < 1000+uint64(5**cases); seed++ {
		h := simulate(seed, 600, jumps)
		if !m.mutation(rand.New(rand.NewPCG(seed, 2)), &h) {
			continue
		}
		n++
		r := Judge(h, patience)
		if len(r.Violations) > 0 {
			found++
		}
		for rule := range r.Found {
			rules[rule]++
		}
	}
	t.Logf("%-50s %3d of %3d, by %v", name, found, n, rules)
	if n < *cases/2 || float64(found) < least*float64(n) {
		t.Errorf("%s: found %d of %d, want %.0f %% of %d or so", name, found, n, 100*least, *cases)
	}
	return found, n
}

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
