package checker

import (
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

const (
	leaseLost     = "/problems/lease-lost"
	alreadyClosed = "/problems/already-closed"
	notPending    = "/problems/not-pending"
)

// answerJudge judges answers of calls that change work.
type answerJudge struct{ *trial }

// judgeAnswers checks each answer against the tables. They must have whatever was answered with a 2xx; and whatever was
// refused because it was over must not happen afterwards.
func (t answerJudge) judgeAnswers() {
	for _, i := range t.calls {
		c := t.entries[i].Call
		done := c.Status/100 == 2
		if done || c.Status == 409 {
			t.judged(string(c.Kind) + " answers")
		}
		switch {
		case c.Kind == history.Dispose && done:
			t.judgeDisposed(i, c)
		case (c.Kind == history.Dispose || c.Kind == history.Extend) && (c.Type == leaseLost || c.Type == alreadyClosed):
			t.judgeLost(i, c)
		case c.Kind == history.Extend && done:
			t.judgeExtended(i, c)
		case c.Kind == history.Reassign && done:
			t.judgeReassigned(i, c)
		case c.Kind == history.Claim && done:
			t.judgeClaimed(i, c)
		case c.Kind == history.Cancel && (done || c.Type == notPending):
			t.judgeCancelled(i, c, done)
		case c.Kind == history.Update && done:
			t.judgeUpdated(i, c)
		case c.Kind == history.Click && done && t.bodies[i] == nil:
			t.broken(Kept, []int{i}, "a click of %s was answered %d, and not with a request", c.Who.User, c.Status)
		}
	}
}

// rowOf returns the row of the work that a call names. If there is none it returns nil, and a 2xx answer is then a
// violation.
func (t answerJudge) rowOf(i int, c *history.Call) *history.WorkRow {
	w := t.works[c.Work]
	if w == nil || w.row == nil {
		if c.Status/100 == 2 {
			t.broken(Kept, []int{i}, "%s of work %d was answered %d, and there is no such row", c.Kind, c.Work, c.Status)
		}
		return nil
	}
	return w.row
}

// closed reports whether a row is as a disposition leaves it.
func closed(c *history.Call, row *history.WorkRow) bool {
	if !saysSo(c, row) {
		return false
	}
	switch c.Outcome {
	case "complete":
		return row.State == "completed"
	case "return":
		after, err := time.ParseDuration(c.After)
		return row.State == "returned" && err == nil && row.After != nil && *row.After == after && row.ToOthers == (c.To == "others")
	case "never":
		return row.State == "never" && !row.Exhausted
	case "fail":
		return row.State == "failed" || row.State == "never" && row.Exhausted
	}
	return false
}

func (t answerJudge) judgeDisposed(i int, c *history.Call) {
	if row := t.rowOf(i, c); row != nil && !closed(c, row) {
		t.broken(Kept, []int{i}, "%s %q of work %d was answered 200; its row says %s",
			c.Outcome, c.After, c.Work, t.works[c.Work].describe())
	}
}

// closing returns the first disposition that may have closed the work as its row says, by the user whom the row names.
// It returns nil if there is none, or if a release by the same manager may have closed it. The same disposition by
// others, who came later, is also answered with a 2xx.
func (t *trial) closing(w *work) (*history.Call, int) {
	by := func(c *history.Call) bool { return w.row.ClosedBy != nil && *w.row.ClosedBy == c.Who.User }
	released := w.row.State == "returned" && *w.row.After == 0 && !w.row.ToOthers
	if released && slices.ContainsFunc(t.releases, func(i int) bool { c := t.entries[i].Call; return by(c) && t.mayRelease(c, w) }) {
		return nil, -1
	}
	for _, i := range w.let {
		if c := t.entries[i].Call; c.Kind == history.Dispose && !refused(c) && by(c) && closed(c, w.row) {
			return c, i
		}
	}
	return nil, -1
}

// judgeLost: work that was refused as over stays over; nobody can let go of it, reassign it or extend it later.
func (t answerJudge) judgeLost(i int, c *history.Call) {
	w := t.works[c.Work]
	if t.rowOf(i, c) == nil || c.Type == leaseLost && t.revives(w, c) {
		return
	}
	same := w.row.State == "held" || closed(c, w.row) && c.Outcome != "fail"
	if c.Kind == history.Dispose && c.Type == alreadyClosed && same {
		t.broken(Kept, []int{i}, "%s of work %d was refused as closed already; its row says %s",
			c.Outcome, c.Work, w.describe())
	}
	disposed := w.row.State == "completed" || w.row.State == "failed" || w.row.State == "never" && !w.row.Exhausted
	if c.Kind == history.Dispose && c.Type == leaseLost && disposed {
		t.broken(Kept, []int{i}, "%s of work %d was refused as its lease had run out; its row says %s",
			c.Outcome, c.Work, w.describe())
	}
	if let, by := t.closing(w); let != nil && let.Began > c.Ended && let.Status/100 == 2 {
		t.broken(Kept, []int{i, by}, "work %d was refused as over by %s, and let go of with %q after %s",
			c.Work, seconds(c.Ended), let.Outcome, seconds(let.Began))
	}
	for _, j := range w.let {
		later := t.entries[j].Call
		if later.Began <= c.Ended || later.Status/100 != 2 {
			continue
		}
		body, _ := t.bodies[j].(*workBody)
		given := later.Kind == history.Reassign && body != nil && body.ID != c.Work
		if later.Kind == history.Extend || given {
			t.broken(Kept, []int{i, j}, "work %d was refused as over by %s; %s of it after %s was answered %d",
				c.Work, seconds(c.Ended), later.Kind, seconds(later.Began), later.Status)
		}
	}
}

// revives reports whether an expired lease may have been running again after a call, because the clock was set back
// before anybody had closed the work.
func (t answerJudge) revives(w *work, c *history.Call) bool {
	if !t.clock.jumped() || w.row.LeaseExpiresAt == nil {
		return false
	}
	least, known := t.clock.least(c.Began, forever)
	return !known || least.Before(*w.row.LeaseExpiresAt)
}

func (t answerJudge) judgeExtended(i int, c *history.Call) {
	body, _ := t.bodies[i].(*workBody)
	if t.rowOf(i, c) != nil && (body == nil || !body.held() || body.ID != c.Work) {
		t.broken(Kept, []int{i}, "to extend work %d was answered 200, and not with that work, held", c.Work)
	}
}

func (t answerJudge) judgeReassigned(i int, c *history.Call) {
	row := t.rowOf(i, c)
	body, _ := t.bodies[i].(*workBody)
	if row == nil || body == nil {
		return
	}
	switch {
	case body.User != c.To || body.Item != row.Item:
		t.broken(Kept, []int{i}, "work %d was to be reassigned to %s, and the answer is item %q of %s",
			c.Work, c.To, body.Item, body.User)
	case body.ID != c.Work && row.State != "reassigned":
		t.broken(Kept, []int{i}, "work %d was reassigned as work %d; its row says %s",
			c.Work, body.ID, t.works[c.Work].describe())
	}
}

// judgeClaimed: a claimed item belongs to the claimer, or to whom they claimed it for; it may be over by the time of the answer.
func (t answerJudge) judgeClaimed(i int, c *history.Call) {
	body, _ := t.bodies[i].(*workBody)
	holder := c.Who
	if c.To != "" {
		holder = history.Who{User: c.To}
	}
	if body == nil || body.Item != c.Item || body.User != holder.User || body.Instance != holder.Instance || !body.held() && body.ClosedAt == nil {
		t.broken(Kept, []int{i}, "a claim of item %q by %s%s for %s%s was answered %d, and not with that item as theirs",
			c.Item, c.Who.User, instance(c.Who.Instance), holder.User, instance(holder.Instance), c.Status)
	}
}

func (t answerJudge) judgeCancelled(i int, c *history.Call, done bool) {
	r := t.requests[c.Request]
	if r == nil || r.row == nil {
		if done {
			t.broken(Kept, []int{i}, "request %d was cancelled, and there is no such row", c.Request)
		}
		return
	}
	if done != (r.row.State == "cancelled") || r.row.State == "pending" {
		t.broken(Kept, []int{i}, "to cancel request %d was answered %d; its row says %s", c.Request, c.Status, r.row.State)
	}
}

// judgeUpdated: the answered version exists, which was there before if the call only paused or resumed the task.
func (t answerJudge) judgeUpdated(i int, c *history.Call) {
	body, _ := t.bodies[i].(*countBody)
	if body == nil || len(t.named[c.Task]) == 0 {
		return
	}
	if !slices.ContainsFunc(t.named[c.Task], func(k *task) bool {
		return slices.ContainsFunc(k.versions, func(v *history.VersionRow) bool {
			return v.Version == body.Version
		})
	}) {
		t.broken(Kept, []int{i}, "a change of %s was answered with version %d, and there is no such version",
			c.Task, body.Version)
	}
}
