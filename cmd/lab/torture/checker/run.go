package checker

import (
	"time"

	"getwork/cmd/lab/torture/history"
)

// judgeRuns finds runs of one task that overlapped, as seen in the server or by their rows. A run whose node died is
// closed as lost by the one that begins the next, before that one's row is written, so no two rows overlap, whatever
// their states.
func (t *trial) judgeRuns() {
	for i := range t.entries {
		if s := t.entries[i].Sample; s != nil {
			t.judged("samples of executions")
			if s.Executions > 1 {
				t.broken(OneRun, []int{i}, "%d executions of the query of %s were under way at %s",
					s.Executions, s.Task, seconds(s.At))
			}
		}
	}
	runs, states := map[int64][]span[*history.RunRow]{}, map[int64]string{}
	for i := range t.tables.Runs {
		row := &t.tables.Runs[i]
		states[row.ID] = row.State
		from, until := t.lasted(row.StartedAt, row.FinishedAt)
		runs[row.Task] = append(runs[row.Task], span[*history.RunRow]{from: from, until: until, of: row})
		t.judged("runs")
	}
	for _, spans := range runs {
		overlaps(spans, func(a, b span[*history.RunRow]) {
			t.broken(OneRun, nil, "run %d of task %d (%s, on %s) began at %s, before run %d (%s, on %s) was over",
				b.of.ID, b.of.Task, b.of.State,
				b.of.Node, b.of.StartedAt.Format(time.StampMicro), a.of.ID, a.of.State, a.of.Node)
		})
	}
	for _, w := range t.works {
		if w.row == nil || w.row.Run == nil {
			continue
		}
		if state := states[*w.row.Run]; state != "finished" {
			t.broken(OneRun, nil, "the result of run %d, which is %q, was handed out: %s", *w.row.Run, state, w.describe())
		}
	}
}
