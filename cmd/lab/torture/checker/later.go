package checker

import (
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// laterJudge judges that nothing comes back before its time.
type laterJudge struct{ *trial }

// judgeReturns: an item that was put off is not handed out before its time; one that was never to return, only after it
// was redriven; and one that was returned to others, not to its last holder. For an item with several places this holds
// only for its own holder.
func (t laterJudge) judgeReturns() {
	for _, it := range t.items {
		for j, b := range it.works {
			for _, a := range it.works[:j] {
				t.judgeReturn(it, a, b)
			}
		}
		if it.single() {
			t.judgeToldEarly(it)
		}
	}
}

func (t laterJudge) judgeReturn(it *item, a, b *work) {
	own := a.row.User == b.row.User
	if a.row.ClosedAt == nil || !t.follows(it, a, b) {
		return
	}
	t.judged("returns of an item")
	if a.row.ToOthers && own {
		t.broken(NotBefore, nil, "an item was handed to the user who had returned it to others: %s, then %s",
			a.describe(), b.describe())
	}
	switch a.row.State {
	case "returned", "failed", "never":
		if !own && !it.single() {
			return
		}
		if a.row.AvailableAt == nil {
			t.broken(NotBefore, nil, "an item that was never to return was handed out: %s, then %s",
				a.describe(), b.describe())
		} else if t.early(a, b) {
			t.broken(NotBefore, nil, "an item was handed out that was put off until %s: %s, then %s",
				a.row.AvailableAt.Format(time.StampMicro), a.describe(), b.describe())
		}
	}
}

// follows reports whether one holding of an item was over before the other began. With one place it was, or another
// rule finds that.
func (t laterJudge) follows(it *item, a, b *work) bool {
	if t.clock.jumped() {
		_, closed := t.stamped(*a.row.ClosedAt)
		assigned, _ := t.stamped(b.row.AssignedAt)
		return it.single() || closed < forever && closed+unordered < assigned
	}
	return !a.row.ClosedAt.After(b.row.AssignedAt) && (it.single() || b.row.AssignedAt.Sub(*a.row.ClosedAt) >= unordered)
}

// early reports whether b was assigned before a's item was available.
func (t laterJudge) early(a, b *work) bool {
	if t.clock.jumped() && a.row.State == "never" {
		return false // when it was redriven says nothing of when it could be handed out
	}
	asked, known := t.asked(b)
	if !known {
		asked = -forever
	}
	return t.tooEarly(b.row.AssignedAt, *a.row.AvailableAt, asked)
}

// tooEarly reports whether something was written, at the time of its stamp, that had to wait until another time. If the
// clock was set, that is certain only if the clock never showed such a time while the transaction may have been at
// work.
func (t laterJudge) tooEarly(stamp, until time.Time, since history.Clock) bool {
	if !t.clock.jumped() {
		return stamp.Before(until)
	}
	from, to := t.stamped(stamp)
	if from == -forever {
		return false
	}
	latest, known := t.clock.most(max(from-unordered, since), to)
	return known && latest.Before(until)
}

// unordered is the least distance between a closing and a round that shows which was first if no lock orders them, as
// for an item with several places. Either may have read and stamped, and then stood still until the server ended its
// transaction.
const unordered = 25 * time.Second

// judgeToldEarly is the same by the clients' clock: if a user puts an item off for an hour, nobody has it within that
// hour.
func (t laterJudge) judgeToldEarly(it *item) {
	for i, a := range it.works {
		let, by := t.closing(a)
		if let == nil || let.Outcome != "return" {
			continue
		}
		due := t.dueAfter(by, *a.row.After)
		for _, b := range it.works[i+1:] {
			for _, s := range b.seen {
				if s.ended < due {
					t.broken(NotBefore, []int{by, s.entry},
						"item %q was put off for %s at %s, and told to be held by %s at %s",
						it.key.item, *a.row.After, seconds(let.Began), s.User, seconds(s.ended))
					break
				}
			}
		}
	}
}

// dueAfter returns a moment before which the database's clock had not advanced by that much since a call had its
// effect.
func (t laterJudge) dueAfter(i int, after time.Duration) history.Clock {
	c := t.entries[i].Call
	if !t.clock.jumped() {
		return c.Began + scale(after, 1-drift) - slack
	}
	ended := c.Ended
	if unknown(c) {
		ended = t.alive(i)
	}
	due := -forever // unknown
	if least, known := t.clock.least(c.Began, ended); known {
		if at, known := t.clock.reaches(least.Add(after), c.Began); known {
			due = at
		}
	}
	return due
}

// judgeLeases: a lease doesn't end early, and after its end nobody lets go of the work; it only expires.
func (t laterJudge) judgeLeases() {
	var stamped []*work // let go of in the very microsecond in which the lease ended
	for _, w := range t.works {
		if w.row == nil || w.row.LeaseExpiresAt == nil || w.row.ClosedAt == nil {
			continue
		}
		t.judged("closed leases")
		row := w.row
		if row.State == "expired" || row.Exhausted && row.ClosedBy == nil {
			if t.tooEarly(*row.ClosedAt, *row.LeaseExpiresAt, -forever) {
				t.broken(NotBefore, nil, "a lease ended early, it was to last until %s: %s",
					row.LeaseExpiresAt.Format(time.StampMicro), w.describe())
			}
			continue
		}
		if row.ClosedAt.After(*row.LeaseExpiresAt) && row.State != "returned" { // a manager may release work that was not swept yet
			t.broken(NotBefore, nil, "work was let go of after its lease, which ended at %s: %s",
				row.LeaseExpiresAt.Format(time.StampMicro), w.describe())
		}
		if row.ClosedAt.Equal(*row.LeaseExpiresAt) {
			stamped = append(stamped, w)
		}
		if let, by := t.closing(w); let != nil && let.Status/100 == 2 && t.wasOver(*row.LeaseExpiresAt, let) {
			t.broken(NotBefore, []int{by},
				"to let go of work %d was asked at %s, and its lease was over by then, it ended at %s; the answer was %d",
				w.id, seconds(let.Began), row.LeaseExpiresAt.Format(time.StampMicro), let.Status)
		}
	}
	if len(stamped) > chance {
		t.broken(NotBefore, nil, "%d pieces of work were let go of in the very microsecond of their lease's end, so it was later: %s …",
			len(stamped), stamped[0].describe())
	}
}

// takenUp reports whether work may have been put aside and then taken up again, or put aside for less: its lease ends earlier then.
func (t *trial) takenUp(w *work) bool {
	n := 0
	for _, i := range w.let {
		if c := t.entries[i].Call; c.Kind == history.Later && !refused(c) {
			n++
		}
	}
	return n > 1
}

// longestAside is for how long work may be put aside.
const longestAside = 72 * time.Hour

// judgeAside: work that its holder has put aside stays theirs until then, and for its lease after that, if nobody takes it away; and nobody
// puts it aside for longer than is allowed.
func (t laterJudge) judgeAside() {
	for _, w := range t.works {
		for _, i := range w.let {
			c := t.entries[i].Call
			if c.Kind != history.Later || c.Status/100 != 2 {
				continue
			}
			t.judged("work put aside, or taken up again")
			body, _ := t.bodies[i].(*workBody)
			if body == nil || body.ID != c.Work || !body.held() || !t.takenUp(w) && !equalTimes(body.LaterUntil, c.Until) {
				t.broken(Kept, []int{i}, "to put work %d aside was answered 200, and not with that work, held and put aside", c.Work)
			}
			if latest, known := t.clock.most(c.Began, c.Ended); known && c.Until != nil && c.Until.After(latest.Add(longestAside)) {
				t.broken(NotBefore, []int{i}, "work %d was put aside until %s, for longer than may be", c.Work, c.Until.Format(time.RFC3339))
			}
		}
		row := w.row
		if row == nil || row.LaterUntil == nil || row.Lease == nil || row.ClosedAt == nil || row.State != "expired" && (!row.Exhausted || row.ClosedBy != nil) {
			continue
		}
		t.judged("work put aside that expired")
		if t.tooEarly(*row.ClosedAt, row.LaterUntil.Add(*row.Lease), -forever) {
			t.broken(NotBefore, w.let, "work was put aside until %s, and its lease of %s ended early: %s", row.LaterUntil.Format(time.StampMicro), row.Lease, w.describe())
		}
	}
}

// wasOver reports whether a lease with that end was certainly over during a whole call.
func (t laterJudge) wasOver(lease time.Time, c *history.Call) bool {
	if t.clock.jumped() {
		least, known := t.clock.least(c.Began, c.Ended)
		return known && least.After(lease)
	}
	over, known := t.clock.by(lease)
	return known && c.Began > over
}

// chance is how often an event with a probability of one in thousands may happen in a run.
const chance = 2

// judgeInbox: items that an inbox hands out were pushed, and are not done. Their deadlines are those that they were pushed with.
func (t laterJudge) judgeInbox() {
	for key, it := range t.items {
		k := t.tasks[key.task]
		if k == nil || !k.inbox || !it.single() {
			continue
		}
		for _, w := range it.works {
			t.judged("work of an inbox")
			if !t.wasOpen(it.pushed, w.row.AssignedAt) {
				t.broken(NotBefore, nil, "an item was handed out that was not pushed, or was done: %s", w.describe())
			}
			if !slices.ContainsFunc(it.pushed, func(row *history.ItemRow) bool { return equalTimes(row.Deadline, w.row.Deadline) }) {
				t.broken(Kept, nil, "an item was handed out with another deadline than it was pushed with: %s", w.describe())
			}
		}
	}
}

// judgeParked: at the end an item of an inbox is not available if, and only if, somebody holds it, or it is never to
// come back. An item that is unavailable without such a reason is lost.
func (t laterJudge) judgeParked() {
	for i := range t.tables.Items {
		row := &t.tables.Items[i]
		it, k := t.items[itemKey{row.Task, row.Item}], t.tasks[row.Task]
		if row.DoneAt != nil || k == nil || !k.inbox || !it.single() {
			continue
		}
		t.judged("open items of an inbox")
		held := slices.ContainsFunc(it.works, func(w *work) bool { return w.row.State == "held" })
		never := slices.ContainsFunc(it.works, func(w *work) bool { return w.row.State == "never" && w.row.RedrivenBy == nil })
		switch {
		case row.Parked && !held && !never:
			t.broken(Kept, nil, "item %q of %s, pushed at %s, is lost: nobody holds it, and it is never handed out",
				row.Item, k.Name, row.PushedAt.Format(time.StampMicro))
		case !row.Parked && held:
			t.broken(HeldOnce, nil, "item %q of %s is held, and can be handed out", row.Item, k.Name)
		}
	}
}

// wasOpen reports whether one of an item's rows may have existed, not done, at some time.
func (t laterJudge) wasOpen(pushed []*history.ItemRow, at time.Time) bool {
	return slices.ContainsFunc(pushed, func(row *history.ItemRow) bool {
		return !t.before(at, row.PushedAt) && (row.DoneAt == nil || !t.before(*row.DoneAt, at))
	})
}
