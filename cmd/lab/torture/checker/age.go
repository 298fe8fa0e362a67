package checker

import (
	"time"

	"getwork/cmd/lab/torture/history"
)

// lag is how much later than the read of the shelf an answer may be stamped: its transaction may have stood still in between.
const lag = 20 * time.Second

// ageJudge judges how old the rankings are whose items are handed out.
type ageJudge struct{ *trial }

// judgeAges: an expired shelf hands out all that a request wants, or nothing; and no shelf is handed out for longer than its task
// allows.
func (t ageJudge) judgeAges() {
	runs := make(map[int64]*history.RunRow, len(t.tables.Runs))
	for i := range t.tables.Runs {
		runs[t.tables.Runs[i].ID] = &t.tables.Runs[i]
	}
	for _, r := range t.requests {
		if r.row == nil || !r.row.Stale && r.row.Assigned == 0 {
			continue
		}
		row := r.row
		fresh, stale := t.longest(row.Task)
		if row.Stale {
			t.judged("requests served from an expired shelf")
			if row.State != "assigned" {
				t.broken(Expired, r.entriesOf(), "request %d of %s is %s with %d of %d, from a shelf that had expired",
					row.ID, row.User, row.State, row.Assigned, row.Wanted)
			}
			if stale == 0 {
				t.broken(Expired, r.entriesOf(), "request %d of %s was served from an expired shelf, which its task does not allow", row.ID, row.User)
			}
			fresh += stale
		}
		if row.Run == nil || runs[*row.Run] == nil {
			continue
		}
		run := runs[*row.Run]
		if row.RankedAt != nil && row.RankedAt.After(run.StartedAt) {
			t.broken(Expired, r.entriesOf(), "request %d of %s says that its items were ranked at %s, and run %d began before that, at %s",
				row.ID, row.User, row.RankedAt.Format(time.StampMicro), run.ID, run.StartedAt.Format(time.StampMicro))
		}
		if t.clock.jumped() || run.FinishedAt == nil || row.CompletedAt == nil {
			continue
		}
		t.judged("ages of what was handed out")
		if age := row.CompletedAt.Sub(*run.FinishedAt); age > fresh+lag {
			t.broken(Expired, r.entriesOf(), "request %d of %s was served %s after the end of run %d, and its task allows %s",
				row.ID, row.User, age, run.ID, fresh)
		}
	}
}

// longest returns the longest times that a version of the task has for its shelf.
func (t ageJudge) longest(id int64) (fresh, stale time.Duration) {
	if k := t.tasks[id]; k != nil {
		for _, v := range k.versions {
			fresh, stale = max(fresh, v.FreshFor), max(stale, v.StaleFor)
		}
	}
	return fresh, stale
}
