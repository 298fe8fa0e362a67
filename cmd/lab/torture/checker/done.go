package checker

import "getwork/cmd/lab/torture/history"

// judgeDone: an item that was finished in the world that a query reads, and then completed, is not handed out again. A
// run that began before still has the item; but the item was let go of after that run's snapshot.
func (t *trial) judgeDone() {
	finished := map[itemKey]history.Clock{}
	for i := range t.entries {
		d := t.entries[i].Done
		if d == nil || t.task(d.Task) == nil {
			continue
		}
		k := itemKey{t.task(d.Task).ID, d.Item}
		if at, known := finished[k]; !known || d.Ended < at {
			finished[k] = d.Ended
		}
	}
	for k, at := range finished {
		it := t.items[k]
		if it == nil || !it.single() {
			continue
		}
		for i, a := range it.works {
			if a.row.State != "completed" || !t.completedAfter(a, at) {
				continue
			}
			t.judged("completions of what the query leaves out then")
			if i+1 < len(it.works) {
				t.broken(DoneIsDone, a.let[:1], "an item was handed out again that was finished by %s: %s, then %s",
					seconds(at), a.describe(), it.works[i+1].describe())
			}
		}
	}
}

// completedAfter reports whether every call that may have completed the work began after a moment.
func (t *trial) completedAfter(w *work, at history.Clock) bool {
	some := false
	for _, i := range w.let {
		if c := t.entries[i].Call; c.Kind == history.Dispose && c.Outcome == "complete" {
			if some = true; c.Began < at {
				return false
			}
		}
	}
	return some
}
