package checker

import (
	"slices"

	"getwork/cmd/lab/torture/history"
)

// judgeReasons: users who got nothing, or less than they wanted, read the true reason.
func (t *trial) judgeReasons() {
	returns := map[int64]*history.Ranking{}
	for i := range t.entries {
		if r := t.entries[i].Ranking; r != nil && t.task(r.Task) != nil {
			returns[t.task(r.Task).ID] = r
		}
	}
	paused := t.pausedTasks()
	for _, r := range t.requests {
		if r.row == nil || r.row.State != "none" && r.row.State != "partial" {
			continue
		}
		if r.row.Task == 0 {
			continue // it has the most hopeful one of several tasks
		}
		reason := ""
		if r.row.Reason != nil {
			reason = *r.row.Reason
		}
		t.judged("reasons of " + r.row.State)
		t.judgeReason(r, reason, returns[r.row.Task], paused[r.row.Task])
	}
}

func (t *trial) judgeReason(r *request, reason string, returns *history.Ranking, paused bool) {
	k := t.tasks[r.row.Task]
	wrong := func(why string) {
		t.broken(Reasons, r.entriesOf(), "a request ended with the reason %q, and "+why+": request %d of %s, %s with %d of %d", reason, r.id, r.row.User,
			r.row.State, r.row.Assigned, r.row.Wanted)
	}
	switch reason {
	case "no_match":
		if returns != nil && len(returns.Items) > 0 && t.ranBefore(r) {
			wrong("the query always returns some")
		} else if returns == nil && k != nil && k.inbox && t.somethingOpen(r) {
			wrong("there were items in the inbox")
		}
	case "all_held":
		if returns != nil && len(returns.Items) == 0 {
			wrong("the query never returns any")
		}
	case "rules":
		if returns != nil && k != nil && !k.rules && !t.declined(r.row.User, k.ID) {
			wrong("no rule keeps anything from the user")
		}
	case "at_limit":
		if least, _, _ := t.overAll(r.row.User); t.mayHoldOver(r) >= least {
			break
		}
		if limit, limited := t.open(r.row.Task); !limited {
			wrong("the task has no limit")
		} else if t.mayHold(r) < limit {
			wrong("the user held less than the limit")
		}
	case "away":
		if !slices.ContainsFunc(t.tables.Absences, func(a history.AbsenceRow) bool { return a.User == r.row.User }) {
			wrong("the user was never away")
		}
	case "paused":
		if !paused && (k == nil || !slices.ContainsFunc(k.versions, func(v *history.VersionRow) bool { return v.Paused })) {
			wrong("nobody has paused the task")
		}
	}
	if r.row.State == "partial" && !slices.Contains([]string{"", "rules", "at_limit"}, reason) {
		wrong("something was handed out")
	}
}

// ranBefore reports whether a run may have finished before a request ended. Until then nobody knows what the query returns, and a request
// that lingers for a shorter time ends without.
func (t *trial) ranBefore(r *request) bool {
	return r.row.LingerUntil == nil || slices.ContainsFunc(t.tables.Runs, func(row history.RunRow) bool {
		return row.Task == r.row.Task && row.State == "finished" && !t.before(*r.row.CompletedAt, *row.FinishedAt)
	})
}

// somethingOpen reports whether the inbox certainly had an item from before a request was recorded until after it had
// ended.
func (t *trial) somethingOpen(r *request) bool {
	if t.clock.jumped() || r.row.CompletedAt == nil {
		return false
	}
	began, known := t.clock.after(r.row.CreatedAt)
	return known && slices.ContainsFunc(t.tables.Items, func(row history.ItemRow) bool {
		return row.Task == r.row.Task && (row.DoneAt == nil || row.DoneAt.After(*r.row.CompletedAt)) &&
			row.PushedAt.Before(r.row.CreatedAt) && t.written(row.PushedAt) <= began
	})
}

// mayHold returns the most that a request's user may have held of its task when it ended.
func (t *trial) mayHold(r *request) int { return t.mayHoldOf(r, t.heldBy(r.row.Task, r.row.User)) }

// mayHoldOver is mayHold for all tasks together.
func (t *trial) mayHoldOver(r *request) (n int) {
	for task := range t.tasks {
		n += t.mayHoldOf(r, t.heldBy(task, r.row.User))
	}
	return n
}

func (t *trial) mayHoldOf(r *request, works []*work) (n int) {
	for _, w := range works {
		if w.row.ClosedAt == nil || t.clock.jumped() {
			n++
			continue
		}
		// The end of a request may be stamped, and closings may be committed, some time after its round has read.
		began, known := t.clock.after(r.row.CreatedAt)
		if !known || t.written(*w.row.ClosedAt) >= began {
			n++
		}
	}
	return n
}

// heldBy returns everything that a user ever had of a task.
func (t *trial) heldBy(task int64, user string) []*work {
	if t.users == nil {
		t.users = map[holding][]*work{}
		for _, w := range t.works {
			if w.row != nil {
				k := holding{w.row.Task, w.row.User}
				t.users[k] = append(t.users[k], w)
			}
		}
	}
	return t.users[holding{task, user}]
}

// holding is a user and a task.
type holding struct {
	task int64
	user string
}
