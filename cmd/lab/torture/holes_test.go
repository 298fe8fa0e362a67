package torture_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/node"
	"getwork/cmd/lab/torture"
	"getwork/cmd/lab/torture/checker"
	"getwork/schema/schematest"
)

// hole is a promise and all defences that keep it.
type hole struct {
	defences []string
	options  torture.Options
	breaks   []checker.Rule            // one of these breaks with all of the defences off
	alone    map[string][]checker.Rule // what may break with only this one off, because the other does not cover it
	few      map[string]int            // how many users there are, without programs, when only this one is off
}

// seeds is how many runs may look for a random event, with all of the defences off.
const seeds = 4

// With all defences of a promise switched off, the harness finds it broken; with one of the two it does not.
var holes = map[string]hole{
	// There are more slots for runs than runs: giving one back wakes whatever waited for it. With more users than the machine serves
	// at once, hardly a click would come between a round's read and its end.
	"lost wake-up": {[]string{"lookagain", "sweep"},
		torture.Options{Scenario: "clicks", For: 20 * time.Second, Users: 40, Think: 300 * time.Millisecond, Settle: 10 * time.Second,
			Flags: []string{"--max-runs", "20"}},
		[]checker.Rule{checker.EndsOnce}, nil, nil},
	// The indexes know what is held, not what is put off, how much a user may hold or what is best: only the lock does. A
	// writer that waits for an index has stamped its time before.
	"held by two": {[]string{"unique", "assignlock"},
		torture.Options{Scenario: "owners", For: 8 * time.Second, Users: 60, Think: 300 * time.Millisecond},
		[]checker.Rule{checker.HeldOnce}, map[string][]checker.Rule{
			"assignlock": {checker.HeldInTurn, checker.NotBefore, checker.Limits, checker.Best},
		}, nil},
	// Taking the lock first helps only if the lock is free: so one person claims when it must help alone. Runs have no such
	// defence, so nobody clicks.
	"an old snapshot": {[]string{"lockfirst", "isolation"},
		torture.Options{Scenario: "claims", For: 20 * time.Second, Users: 20, Isolation: "repeatable read"},
		[]checker.Rule{checker.NotBefore}, nil, map[string]int{"lockfirst": 6, "isolation": 1}},
	"a cancel undone": {[]string{"pendingcheck", "forupdate"},
		torture.Options{Scenario: "cancels", For: 8 * time.Second, Users: 60, Think: 300 * time.Millisecond},
		[]checker.Rule{checker.EndsOnce, checker.Kept}, nil, nil},
	// The round's question alone is asked under the lock: without it whoever shares the transaction of their click is not asked
	// about. Without it some wait on for as long as they linger.
	"served after the end": {[]string{"insertask", "roundask", "endlook"},
		torture.Options{Scenario: "rights", For: 12 * time.Second, Users: 60, Agents: 12, Think: 300 * time.Millisecond, Recovery: 5 * time.Second,
			Faults: ending, Every: 50 * time.Millisecond},
		[]checker.Rule{checker.Served}, map[string][]checker.Rule{"roundask": {checker.Served}, "endlook": {checker.EndsSoon}}, nil},
	// The checker gives a node the contract's 30 s to notice that its listener is frozen.
	"a listener frozen": {[]string{"watchdog"},
		torture.Options{Scenario: "live", For: 40 * time.Second, Users: 40, Recovery: 4 * time.Second,
			Faults: []string{"proxy-freeze-listener"}, Every: 300 * time.Millisecond},
		[]checker.Rule{checker.Told, checker.ToldStill}, nil, nil},
}

// always is the hole that is looked for with each commit, so that something is found each time.
const always = "lost wake-up"

// TestHoles proves the harness and its checker: they can find violations.
func TestHoles(t *testing.T) {
	if os.Getenv("GETWORK_TEST_HOLES") == "" {
		t.Skip("takes some minutes, and all of the machine: set GETWORK_TEST_HOLES=1")
	}
	dir := t.TempDir()
	for name, h := range holes {
		t.Run(name, func(t *testing.T) {
			if name != always {
				schematest.Thorough(t) // TestHolesInStep shows the same of most
			}
			t.Parallel()
			for range seeds {
				found := h.torture(t, dir, h.defences...)
				if slices.ContainsFunc(h.breaks, func(r checker.Rule) bool { return found[string(r)] > 0 }) {
					return
				}
			}
			t.Errorf("without %v nothing is broken of %q, in %d runs", h.defences, h.breaks, seeds)
		})
		for _, off := range h.defences {
			if len(h.defences) > 1 {
				t.Run("no "+off, func(t *testing.T) {
					schematest.Thorough(t)
					t.Parallel()
					for _, rule := range h.uncovered(h.torture(t, dir, off), off) {
						t.Errorf("without %s alone: %q is broken", off, rule)
					}
				})
			}
		}
	}
}

// uncovered returns the promises that were broken with only one defence off, although the other covers them.
func (h hole) uncovered(found map[string]int, off string) (broken []string) {
	for rule := range found {
		if r := checker.Rule(rule); slices.Contains(checker.Rules, r) && !slices.Contains(h.alone[off], r) {
			broken = append(broken, rule)
		}
	}
	return broken
}

// torture runs a build without the defences, and counts the findings. Some that break no promise are expected: failed
// calls, or requests that only the sweep has found, show the hole, but lose nothing.
func (h hole) torture(t *testing.T, dir string, off ...string) map[string]int {
	t.Helper()
	o := h.options
	if len(off) < len(h.defences) {
		o.For = 4 * time.Second
		if few := h.few[off[0]]; few > 0 {
			o.For, o.Users, o.Agents = 30*time.Second, few, 0
		}
	}
	o.Binary = filepath.Join(dir, strings.Join(off, "-"))
	if err := node.Build(t.Context(), o.Binary, "-overlay", overlay(t, without(t, off...)...)); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(o.Binary)
	if o.Faults == nil {
		o.Faults = []string{torture.None}
	}
	o.Out, o.Log = t.TempDir(), t.Logf
	report, err := torture.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, v := range report.Violations {
		if found[v.Rule]++; found[v.Rule] < 3 {
			t.Log(v.Rule, ": ", v.Text)
		}
	}
	t.Logf("%d requests, %d pieces of work; found: %v", total(report.States), total(report.Work), found)
	if total(report.Work) < 10 {
		t.Error("too little happened for this to prove anything")
	}
	return found
}

func total(counts map[string]int) (n int) {
	for _, one := range counts {
		n += one
	}
	return n
}

// inStep are tests that hold two sessions in step, with their outcome without some of the defences.
var inStep = []struct {
	test, tree string
	off        []string
	broken     string // the test's message then; "": it passes
}{
	{"TestLastClickIsServed", "assign/engine", []string{"lookagain"}, ""},
	{"TestLastClickIsServed", "assign/engine", []string{"sweep"}, ""},
	{"TestLastClickIsServed", "assign/engine", []string{"lookagain", "sweep"}, "the last click is served"},
	{"TestItemIsGivenOnce", "assign/engine", []string{"unique"}, ""},
	{"TestItemIsGivenOnce", "assign/engine", []string{"assignlock"}, ""},
	{"TestItemIsGivenOnce", "assign/engine", []string{"unique", "assignlock"}, "an item with one place is given once"},
	{"TestCancelIsKept", "assign/engine", []string{"pendingcheck"}, ""},
	{"TestCancelIsKept", "assign/engine", []string{"forupdate"}, ""},
	{"TestCancelIsKept", "assign/engine", []string{"pendingcheck", "forupdate"}, "what was cancelled stays so"},
	{"TestClaimSeesAllBeforeItsLock", "assign/engine", []string{"lockfirst"}, ""},
	// The level carries it: a transaction that waits for its lock reads what was true when it began to wait.
	{"TestClaimSeesAllBeforeItsLock", "assign/engine", []string{"isolation"}, "never again, with a lock that is taken"},
	{"TestClaimSeesAllBeforeItsLock", "assign/engine", []string{"assignlock"}, "never again, with a lock that is taken"},
	{"TestClaimSeesAllBeforeItsLock", "assign/engine", []string{"lockfirst", "isolation"}, "never again, with a free lock"},
	{"TestEndBeforeTheRound", "assign/engine", []string{"insertask", "endlook"}, ""},
	{"TestEndBeforeTheRound", "assign/engine", []string{"roundask"}, "want cancelled and 0"},
	{"TestEndedClicksOfABatch", "assign/engine", []string{"endlook"}, ""},
	{"TestEndedClicksOfABatch", "assign/engine", []string{"insertask", "roundask"}, "want a refusal of kind unauthenticated"},
	{"TestClickBesideTheEnd", "assign/engine", []string{"insertask", "roundask"}, ""},
	{"TestClickBesideTheEnd", "assign/engine", []string{"endlook"}, "waits in vain"},
	{"TestCallersGoWhileTheirBatchWaits", "assign/engine", []string{"stillwaits"}, "requests of those who have gone"},
	{"TestCallersGoWhileTheirBatchWaits", "assign/engine", []string{"joinwaits"}, "requests of those who have gone"},
	{"TestClicksJoinABatchThatWaits", "assign/engine", []string{"lateadmit"}, "want a refusal of kind invalid"},
	{"TestTaskChangesWhileABatchWaits", "assign/engine", []string{"lateconfirm"}, "want a refusal of kind invalid"},
	{"TestLateBatchBesideAConflictingTask", "assign/engine", []string{"lateorder"}, "deadlocks"},
	{"TestRefusedClickBeginsAgain", "assign/engine", []string{"beginagain"}, "hand out to clicks"},
	{"TestTooLateIsRefused", "assign/engine", []string{"leasecheck"}, "too late to complete"},
	{"TestManyAreJudgedAsOne", "assign/engine", []string{"manylease"}, "ran out, "},
	{"TestManyAreJudgedAsOne", "assign/engine", []string{"manyholder"}, "together:"},
	{"TestExtendMany", "assign/engine", []string{"leasecheck"}, "were extended, want 1"},
	{"TestExtendMany", "assign/engine", []string{"manyholder"}, "were extended, want 1"},
	{"TestFrozenConnectionIsNoticedAndReplaced", "notify", []string{"watchdog"}, "for down"},
}

// TestHolesInStep proves which defence covers which, without randomness.
func TestHolesInStep(t *testing.T) {
	if os.Getenv("GETWORK_TEST_HOLES") == "" {
		t.Skip("takes some minutes, and all of the machine: set GETWORK_TEST_HOLES=1")
	}
	for _, c := range inStep {
		t.Run(c.test+" without "+strings.Join(c.off, " and "), func(t *testing.T) {
			run := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-overlay", overlay(t, without(t, c.off...)...), "-run", "^"+c.test+"$")
			run.Dir = folderOf(t, c.tree, c.test)
			out, err := run.CombinedOutput()
			switch passed, failed := strings.Contains(string(out), "--- PASS: "+c.test), strings.Contains(string(out), "--- FAIL: "+c.test); {
			case c.broken == "" && (err != nil || !passed):
				t.Errorf("it ought to pass: %v\n%s", err, out)
			case c.broken != "" && (!failed || !strings.Contains(string(out), c.broken)):
				t.Errorf("it ought to fail, and say %q: %v\n%s", c.broken, err, out)
			}
		})
	}
}

// The tests that TestHolesInStep runs exist.
func TestInStepTestsExist(t *testing.T) {
	for _, c := range inStep {
		folderOf(t, c.tree, c.test)
	}
}

// folderOf returns the folder of a test, below a folder of the repository.
func folderOf(t *testing.T, tree, test string) (folder string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, tree), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), "func "+test+"(t *testing.T) {") {
			folder = filepath.Dir(path)
		}
		return err
	})
	if err != nil || folder == "" {
		t.Fatalf("no test %s below %s (%v)", test, tree, err)
	}
	return folder
}
