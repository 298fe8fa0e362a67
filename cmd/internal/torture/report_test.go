package torture

import (
	"strings"
	"testing"

	"getwork/cmd/internal/torture/checker"
	"getwork/cmd/internal/torture/history"
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
