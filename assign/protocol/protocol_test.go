package protocol

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"getwork/schema/schematest"
)

var long = flag.Bool("long", false, "check the larger models, too: some minutes more, and 2.1 GB of memory")

// Spin's messages when a promise is broken.
const (
	kept       = ""
	lost       = "invalid end state"                // no step is possible, and somebody waits
	neverEnds  = "acceptance cycle"                 // steps go on for ever, and somebody waits
	heldTwice  = "(held&(1<<n))"                    // an item is given to a second holder
	outOfDate  = "(done&(1<<n))"                    // an item is given that was completed after the query had seen it
	endedTwice = "assertion violated (state[i]==4)" // (pending) a request ends twice, for example after a cancel
	twoRuns    = "assertion violated (querying==0)" // a query begins beside another
	overtaken  = "assertion violated (state[k]!=4)" // a later request is served while an earlier one waits on
	lastFirst  = "(state[i]==3))&&(state[k]==2)"    // of two requests in a round, the later gets the item, and the earlier nothing
)

// check is a model and what is expected of it.
type check struct {
	switches string
	want     string
}

// next is a check of the model of one request over several tasks.
type next check

func (c next) run(t *testing.T) { check(c).of(t, "next.pml", false) }

func (c check) run(t *testing.T, live bool) { c.of(t, "getwork.pml", live) }

func (c check) of(t *testing.T, model string, live bool) {
	t.Run(strings.ReplaceAll(c.switches, " ", ","), func(t *testing.T) {
		t.Parallel()
		f := search{model: model, switches: c.switches, live: live, soon: c.want != kept}.run(t)
		t.Logf("%d states %s", f.states, f.violation)
		if (f.violation == "") != (c.want == kept) || !strings.Contains(f.violation, c.want) {
			t.Errorf("found %q, want %q", f.violation, c.want)
		}
		// With connections cut, every step of the model must be reached.
		if strings.Contains(c.switches, "CUTS") && len(f.unreached) > 0 {
			t.Errorf("these steps are never taken, so the search proves nothing about them:\n%s", strings.Join(f.unreached, "\n"))
		}
	})
}

// Nothing forbidden happens, in whatever order the steps interleave, and nobody waits when no step is possible.
func TestNothingForbidden(t *testing.T) {
	t.Parallel()
	checks := []check{
		{"CLICKERS=3", kept},
		{"CLICKERS=2 CANCELS CRASHES=1", kept},
		{"CLICKERS=2 SHELF CUTS=1", kept},
	}
	switch {
	case testing.Short():
		checks = []check{{"CLICKERS=2 WITHOUT_SWEEP", kept}}
	case schematest.Also(t.Name()) || *long:
		checks = append(checks, check{"CLICKERS=2 SHELF REFRESHES=1 CLOSINGS=1 WITHOUT_SWEEP", kept},
			check{"CLICKERS=3 NODES=3 WITHOUT_SWEEP", kept}, check{"CLICKERS=3 CANCELS WITHOUT_SWEEP", kept},
			check{"CLICKERS=3 SHELF WITHOUT_SWEEP", kept}, check{"CLICKERS=2 CANCELS CUTS=1", kept})
	}
	if *long {
		checks = append(checks, check{"CLICKERS=3 CANCELS", kept}, check{"CLICKERS=2 CRASHES=1 CUTS=1", kept},
			check{"CLICKERS=2 CRASHES=2", kept}, check{"CLICKERS=2 SHELF REFRESHES=1 CLOSINGS=1", kept})
	}
	for _, c := range checks {
		c.run(t, false)
	}
}

// allLooks takes away all that looks again but the periodic check.
const allLooks = "WITHOUT_LOOK_AGAIN WITHOUT_LOOK_ONCE_MORE WITHOUT_LOOK_AFTER_NOTHING WITHOUT_LOOK_AFTER_GIVING_UP WITHOUT_COMMIT_FIRST"

// Every recorded request ends, if every process that can go on does so some day. Where no node dies, looking again or the
// periodic check is enough; where one does, the periodic check is needed.
func TestEverybodyIsServed(t *testing.T) {
	schematest.Long(t)
	t.Parallel()
	checks := []check{
		{"CLICKERS=2 CANCELS WITHOUT_SWEEP", kept},
		{"CLICKERS=2 SHELF WITHOUT_SWEEP", kept},
		{"CLICKERS=2 WITHOUT_LOOK_AGAIN WITHOUT_SWEEP", neverEnds},
		{"CLICKERS=2 WITHOUT_SWEEP CRASHES=1", neverEnds},
		{"CLICKERS=2 WITHOUT_SWEEP CUTS=1", neverEnds},
	}
	if schematest.Also(t.Name()) || *long {
		checks = append(checks, check{"CLICKERS=2 CRASHES=1", kept}, check{"CLICKERS=2 CANCELS " + allLooks, kept})
	}
	if *long {
		checks = append(checks, check{"CLICKERS=2 CUTS=1", kept}, check{"CLICKERS=3", kept}, check{"CLICKERS=3 WITHOUT_SWEEP", kept})
	}
	for _, c := range checks {
		c.run(t, true)
	}
}

// Each line of defence is taken away, alone and with the defences behind it. When none is left, Spin must find the promise
// broken: a model that can't fail proves nothing.
func TestDefences(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, c := range []check{
		{"CLICKERS=2 WITHOUT_LOOK_AGAIN WITHOUT_SWEEP", lost},
		{"CLICKERS=2 WITHOUT_LOOK_ONCE_MORE WITHOUT_SWEEP", lost},
		{"CLICKERS=2 CANCELS WITHOUT_LOOK_AFTER_NOTHING WITHOUT_SWEEP", lost},
		{"CLICKERS=2 CANCELS WITHOUT_LOOK_AFTER_GIVING_UP WITHOUT_SWEEP", lost},
		{"CLICKERS=2 WITHOUT_COMMIT_FIRST WITHOUT_SWEEP", lost},

		{"CLICKERS=2 CANCELS WITHOUT_ROW_LOCKS", kept},
		{"CLICKERS=2 CANCELS WITHOUT_STILL_PENDING", kept},
		{"CLICKERS=2 CANCELS WITHOUT_ROW_LOCKS WITHOUT_STILL_PENDING", endedTwice},

		{"CLICKERS=2 SHELF WITHOUT_ASSIGN_LOCK", kept},
		{"CLICKERS=2 SHELF WITHOUT_UNIQUE_INDEX", kept},
		{"CLICKERS=2 SHELF WITHOUT_ASSIGN_LOCK WITHOUT_UNIQUE_INDEX", heldTwice},

		{"CLICKERS=2 WITHOUT_RUN_LOCK", twoRuns},
		{"CLICKERS=2 WITHOUT_RUN_LOCK RUNS_MAY_MEET", kept}, // it costs a query, but no item goes to two
		{"CLICKERS=2 WITHOUT_RUN_LOCK RUNS_MAY_MEET WITHOUT_ASSIGN_LOCK WITHOUT_UNIQUE_INDEX", kept},

		{"CLICKERS=2 SHELF CLOSINGS=1 WITHOUT_SNAPSHOT", outOfDate},
		{"CLICKERS=2 SHELF WITHOUT_EVERYBODY", overtaken},
		{"CLICKERS=2 ITEMS=1 WITHOUT_ORDER", lastFirst},
	} {
		if !schematest.Also(c.switches) && !*long && (c.want == kept || found[c.want] || strings.Contains(c.switches, "SHELF")) {
			continue
		}
		found[c.want] = true
		c.run(t, false)
	}
}

// Spin's messages when a promise to a request over several tasks is broken.
const (
	unwoken    = "(items[1]==0)||running[1]" // an item is free in B, somebody waits, and nobody looks
	unserved   = "(0&(1<<i))"                // a request waits although nothing is to be asked, and does not linger
	twice      = "(state[i]==3)"             // it is answered twice
	inVain     = "todo["                     // a run begins, and nobody waits for it
	deadlocked = "(assign_lock[0]==0)"       // rounds of two tasks wait for each other's rows
)

// One request over two tasks. Where no node dies it needs no periodic look.
func TestNextOverTwoTasks(t *testing.T) {
	t.Parallel()
	checks := []next{
		{"WITHOUT_RESCUING", kept},
		{"PEOPLE=1 NO_ORDINARY CRASHES=1", kept},
		{"NODES=2 FREED=0 FOUND=0 WITHOUT_RESCUING", kept},
	}
	switch {
	case testing.Short():
		checks = checks[2:]
	case schematest.Also(t.Name()) || *long:
		checks = append(checks, next{"B_QUERIES YOUNG WITHOUT_RESCUING", kept}, next{"PEOPLE=3 FREED=0 WITHOUT_RESCUING", kept},
			next{"PEOPLE=1 NO_ORDINARY CRASHES=1 B_QUERIES", kept}, next{"NO_ORDINARY REPEATS=1 WITHOUT_RESCUING", kept}, next{"B_QUERIES", kept})
	}
	for _, c := range checks {
		c.run(t)
	}
}

func TestDefencesOfNext(t *testing.T) {
	schematest.Long(t)
	t.Parallel()
	for _, c := range []next{
		{"FOUND=0 WITHOUT_WAKING_ALL WITHOUT_RESCUING", unwoken},
		{"PEOPLE=1 NO_ORDINARY FOUND=0 WITHOUT_WAKING_ALL", kept}, // the periodic look wakes the others
		{"PEOPLE=1 NO_ORDINARY FOUND=0 CRASHES=1 WITHOUT_RESCUING_ALL", unwoken},
		{"PEOPLE=1 NO_ORDINARY FOUND=0 CRASHES=1 WITHOUT_RESCUING_BESIDE_RUN", unwoken},
		{"PEOPLE=1 NO_ORDINARY CRASHES=1 WITHOUT_UNSEEN", unwoken},
		{"PEOPLE=1 NO_ORDINARY CRASHES=1 FREED=0 LINGERERS=0 WITHOUT_ONE_TRANSACTION", unserved},
		{"B_QUERIES FREED=0 WITHOUT_ELSEWHERE", inVain},
		{"NO_ORDINARY WITHOUT_RESCUING WITHOUT_LOCKING_BY_ID", deadlocked},
		{"NO_ORDINARY WITHOUT_RESCUING REPEATS=1 WITHOUT_READING_UPWARDS", deadlocked},
		{"NO_ORDINARY WITHOUT_RESCUING WITHOUT_ROW_LOCKS", kept},
		{"NO_ORDINARY WITHOUT_RESCUING WITHOUT_ROW_LOCKS WITHOUT_STILL_PENDING", twice},
	} {
		if c.want != kept || schematest.Also(c.switches) || *long {
			c.run(t)
		}
	}
}

const tableHead = `| | who | what | run lock | Oliver | Tracy |
| --- | --- | --- | --- | --- | --- |
`

// The first form of the story has a hole. Spin finds the shortest way into it, which docs/protocol.md shows. With the
// holder looking again it has none.
func TestStory(t *testing.T) {
	schematest.Long(t)
	t.Parallel()
	f := search{model: "story.pml", shortest: true}.run(t)
	if !strings.Contains(f.violation, lost) {
		t.Fatalf("found %q, want %q", f.violation, lost)
	}
	table, n := tableHead, 0
	for line := range strings.Lines(command(t, f.folder, "spin", "-t", "-T", "-B", "story.pml")) {
		if strings.HasPrefix(line, "| ") {
			n++
			table += fmt.Sprintf("| %d %s", n, line)
		}
	}
	for _, file := range []string{"story.trail.txt", "../../docs/protocol.md"} {
		if !strings.Contains(read(t, file), table) {
			t.Errorf("%s does not have what Spin found:\n%s", file, table)
		}
	}
	if f := (search{model: "story.pml", switches: "LOOK_AGAIN", shortest: true}).run(t); f.violation != "" {
		t.Errorf("with the look again: %s", f.violation)
	}
}

var (
	named  = regexp.MustCompile(`\s\[([A-Za-z., ]*[a-z][A-Za-z., ]*)\]`)    // in the model: [functions and statements]
	mapped = regexp.MustCompile("(?m)^\\| [^|]* \\| ([^|]*\\.go[^|]*) \\|") // in the page: the middle column of the table of steps
	quoted = regexp.MustCompile("`([A-Za-z.]+)`")
)

// The functions of assign/engine and assign/plan that the model and its page name exist under these names.
func TestNamesAreTheCodes(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{"../engine/*.go", "../plan/*.go", "../ranking/*.go", "../feed/*.go", "../pg/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				code.WriteString(read(t, f))
			}
		}
	}
	var names []string
	for _, n := range named.FindAllStringSubmatch(read(t, "getwork.pml")+read(t, "next.pml"), -1) {
		names = append(names, strings.Split(n[1], ", ")...)
	}
	steps := len(names)
	for _, row := range mapped.FindAllStringSubmatch(read(t, "../../docs/protocol.md"), -1) {
		for _, n := range quoted.FindAllStringSubmatch(row[1], -1) {
			names = append(names, n[1])
		}
	}
	if steps < 30 || len(names) < steps+30 {
		t.Fatalf("only %d names were found, which can't be all", len(names))
	}
	for _, n := range names {
		n = n[strings.LastIndex(n, ".")+1:]
		if !regexp.MustCompile(`\b` + n + `( *=|\()`).MatchString(code.String()) {
			t.Errorf("assign has no %s any more; does the model still say what the code does?", n)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
