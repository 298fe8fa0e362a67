package checker

import (
	"cmp"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// A request whose task waits for a run slot waits for one run of each task before it, and no longer. Nodes hear of each
// other's requests a little later, and each hands on its own slots, so a few more are allowed.
const (
	heardOf   = time.Second            // by then every node knows which requests wait
	longRun   = 200 * time.Millisecond // a shorter run delays nobody
	mostTurns = 3                      // of any other task, while a request waits
)

// judgeFairness: while a request waits for its task's run to begin, no other task takes turn after turn.
func (t *trial) judgeFairness() {
	if t.clock.jumped() {
		return
	}
	runs, at := map[int64][]*history.RunRow{}, map[int64]*history.RunRow{}
	for i := range t.tables.Runs {
		row := &t.tables.Runs[i]
		runs[row.Task] = append(runs[row.Task], row)
		at[row.ID] = row
	}
	for _, of := range runs {
		slices.SortFunc(of, func(a, b *history.RunRow) int { return a.StartedAt.Compare(b.StartedAt) })
	}
	paused := t.pausedTasks()
	for _, r := range t.requests {
		if r.row == nil || r.row.Run == nil || r.row.LingerUntil != nil || r.row.Next || paused[r.row.Task] {
			continue
		}
		if run := at[*r.row.Run]; run != nil && run.StartedAt.Sub(r.row.CreatedAt) > heardOf {
			t.judgeWait(r, run, runs)
		}
	}
}

func (t *trial) judgeWait(r *request, run *history.RunRow, runs map[int64][]*history.RunRow) {
	if slices.ContainsFunc(runs[r.row.Task], func(o *history.RunRow) bool { // it waited for that run
		return o.StartedAt.Before(run.StartedAt) && (o.FinishedAt == nil || o.FinishedAt.After(r.row.CreatedAt))
	}) {
		return
	}
	began, known := t.clock.after(r.row.CreatedAt)
	served, ends := t.clock.by(run.StartedAt)
	if !known || !ends || t.undisturbed(served, t.Recovery, began-t.Recovery, anyNode) != served {
		return
	}
	t.judged("waits for a place to run")
	for task, of := range runs {
		if task == r.row.Task {
			continue
		}
		from := r.row.CreatedAt.Add(heardOf)
		first, _ := slices.BinarySearchFunc(of, from, func(o *history.RunRow, at time.Time) int { return cmp.Or(o.StartedAt.Compare(at), 1) })
		turns := 0
		for _, o := range of[first:] {
			if !o.StartedAt.Before(run.StartedAt) {
				break
			}
			if o.FinishedAt != nil && o.FinishedAt.Sub(o.StartedAt) >= longRun {
				turns++
			}
		}
		if turns > mostTurns {
			t.broken(Fair, r.entriesOf(), "request %d of %s waited for %v until a run of its task began, in which task %d began %d",
				r.id, r.row.User, run.StartedAt.Sub(r.row.CreatedAt).Round(time.Millisecond), task, turns)
		}
	}
}

// pausedTasks returns the tasks that anybody may have paused.
func (t *trial) pausedTasks() map[int64]bool {
	paused := map[int64]bool{}
	for _, i := range t.calls {
		if c := t.entries[i].Call; c.Kind == history.Update && c.Paused != nil && *c.Paused && !refused(c) {
			for _, k := range t.named[c.Task] {
				paused[k.ID] = true
			}
		}
	}
	return paused
}
