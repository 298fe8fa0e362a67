package torture_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/lab/torture"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) {
	code := schematest.Main(m)
	cluster.Clean()
	os.Exit(code)
}

// run tortures for a while with the test's binary, which has the race detector if the test has it.
func run(t *testing.T, o torture.Options) torture.Report {
	t.Helper()
	if testing.Short() {
		t.Skip("tortures nodes for a while: not with -short")
	}
	o.Binary, o.Log = cluster.Binary(t), t.Logf
	var text strings.Builder
	report, err := torture.Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", errors.Join(err, report.Unjudged(&text)), text.String())
	}
	if err := report.Text(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	if n := report.Found(); n > 0 {
		t.Errorf("%d violations; this command may find them again: %s", n, report.Options.Command())
	}
	return report
}

// Everything breaks, and nothing is lost.
func TestNothingIsLost(t *testing.T) {
	schematest.Thorough(t)
	for name, o := range map[string]torture.Options{
		"a clock that is set": {Every: 700 * time.Millisecond},
		"people who log in":   {Every: 400 * time.Millisecond, Scenario: "rights"}, // the tables say more, since the clock is right
	} {
		t.Run(name, func(t *testing.T) {
			nothingIsLost(t, o)
		})
	}
}

func nothingIsLost(t *testing.T, o torture.Options) {
	o.For, o.Users, o.Agents = 20*time.Second, 80, 12
	report := run(t, o)
	if len(report.Faults) < 5 || report.States["assigned"] < 50 || report.Messages["request"] < 50 {
		t.Error("too little happened for this to prove anything")
	}
	if report.Judged["ends that a socket was to tell"] < 50 || report.Judged["ends of work that a socket was to tell"] < 50 || report.Streams < 10 {
		t.Error("too little was pushed for this to prove anything")
	}
	if o.Scenario == "rights" && (report.Judged["calls by a credential that had ended"] == 0 || report.Judged["live channels whose user's credential ended"] == 0) {
		t.Error("too few rights ended for this to prove anything")
	}
	if report.Judged["answers that nothing has changed"] == 0 {
		t.Error("nobody was told that nothing has changed")
	}
	if report.Judged["jumps of the database's clock: no times of the tables"] > 0 {
		t.Error("nobody can tell what the clock showed")
	}
	if seen := report.Judged["jumps of the database's clock"]; (seen > 0) != (report.Faults["clock"] > 0) {
		t.Errorf("the clock was set %d times or more, and was seen to be %d times", report.Faults["clock"], seen)
	}
}

// If nothing breaks, the sweep alone finds nobody. On a busy machine little is done at a time, so people work for longer, until they have
// done enough for this to prove anything.
func TestNothingBreaks(t *testing.T) {
	told, assigned := 0, 0
	for work := 8 * time.Second; told < 10 || assigned < 20; work *= 2 {
		if work > 2*time.Minute {
			t.Fatalf("in all, %d requests were served, and %d ends were told: too little to prove anything", assigned, told)
		}
		report := run(t, torture.Options{For: work, Users: 40, Agents: 8, Faults: []string{torture.None}})
		if !report.RescuedKnown || report.Rescued > 0 {
			t.Errorf("%d requests were found by the sweep alone; known: %t", report.Rescued, report.RescuedKnown)
		}
		if len(report.Faults) > 0 {
			t.Errorf("faults %v", report.Faults)
		}
		told += report.Judged["ends that a socket was to tell"]
		assigned += report.States["assigned"]
	}
}
