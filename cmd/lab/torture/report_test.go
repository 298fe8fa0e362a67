package torture

import (
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/cmd/lab/torture/checker"
	"getwork/cmd/lab/torture/history"
)

// A flood of one kind hides no other: some of each kind are reported, and all are counted.
func TestAFloodHidesNothing(t *testing.T) {
	var own findings
	for n := range 500 {
		own.add("answers", "node %d answered 500", n)
	}
	own.add("process", "node %d ended by itself", 1)
	var h history.History
	for range 100 {
		h.Entries = append(h.Entries, history.Entry{Sample: &history.Sample{Task: "quick", Executions: 2}})
	}
	var r Report
	r.judge(h, checker.Judge(h, checker.Config{}), &own)
	var b strings.Builder
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	if r.Found() != 601 || len(r.Violations) != 5+1+5 {
		t.Errorf("%d violations are counted, and %d told, want 601 and 11", r.Found(), len(r.Violations))
	}
	for _, want := range []string{"   500 of answers: node … answered 500", "     1 of process: node … ended by itself", "   100 of one run at a time: … executions"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, b.String())
		}
	}
}

// A run that shows nothing has not passed, unless it was to be that short; a history that is judged again may be of any length.
func TestNothingIsNoPass(t *testing.T) {
	clicked := history.History{Tables: history.Tables{Requests: []history.RequestRow{{State: "assigned"}}, Work: []history.WorkRow{{State: "held"}}}}
	ran := clicked.Tables
	ran.Runs = []history.RunRow{{State: "finished"}}
	much := ran
	much.Work = slices.Repeat(ran.Work, 300)
	told := history.Entry{Told: &history.Told{Type: "request"}}
	for _, c := range []struct {
		name    string
		options Options
		tables  history.Tables
		entries []history.Entry
		found   int
	}{
		{"nothing at all", Options{}, history.Tables{}, nil, 2},
		{"nothing pushed", Options{}, clicked.Tables, []history.Entry{{Told: &history.Told{Type: "snapshot"}}}, 1},
		{"nothing assigned", Options{}, history.Tables{Requests: []history.RequestRow{{State: "none"}}, Work: clicked.Tables.Work}, []history.Entry{told}, 1},
		{"enough", Options{}, clicked.Tables, []history.Entry{told}, 0},
		{"claims alone", Options{Scenario: "claims"}, history.Tables{Work: clicked.Tables.Work}, []history.Entry{told}, 0},
		{"no claims, of claims alone", Options{Scenario: "claims"}, history.Tables{}, []history.Entry{told}, 1},
		{"runs that were not seen", Options{}, ran, []history.Entry{told}, 1},
		{"runs that were seen", Options{}, ran, []history.Entry{told, {Sample: &history.Sample{Task: "plain", Executions: 1}}}, 0},
		{"much that was not judged", Options{}, much, []history.Entry{told, {Sample: &history.Sample{Task: "plain", Executions: 1}}}, len(ofAll) + len(unlessSet)},
		{"much of the few that claims show", Options{Scenario: "claims"}, much, []history.Entry{told}, 0},
		{"too short", Options{For: time.Second, Users: 40}, history.Tables{}, nil, 0},
		{"too few", Options{For: time.Hour, Users: 1}, history.Tables{}, nil, 0},
	} {
		o, err := c.options.Complete()
		if err != nil {
			t.Fatal(err)
		}
		r := Report{Options: o}
		r.judge(history.History{Tables: c.tables, Entries: c.entries}, checker.Report{Judged: samplesOf(c.entries)}, &findings{})
		if r.Found() != c.found {
			t.Errorf("%s: found %v, want %d", c.name, r.Violations, c.found)
		}
	}
	if r := Judge(history.History{}); r.Found() > 0 {
		t.Error(r.Violations)
	}
}

// samplesOf returns what the checker says of samples.
func samplesOf(entries []history.Entry) map[string]int {
	judged := map[string]int{}
	for _, e := range entries {
		if e.Sample != nil {
			judged["samples of executions"]++
		}
	}
	return judged
}
