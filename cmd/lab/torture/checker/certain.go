package checker

import (
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// The answers that clients got, and when, show when a user certainly held something, whatever the tables say. An answer
// that says "held" was true at some moment of its call, and work that was let go of is never held again. So the work
// was held from the end of the first such call until something began that may have ended it: a call that lets go of it,
// reassigns or releases it, or the end of its lease. It was also held until the last such call began.

// lets reports whether a call may let go of the work that it names.
func lets(c *history.Call) bool {
	return !refused(c) && (c.Kind == history.Dispose || c.Kind == history.Reassign)
}

// certainly returns when the work was certainly held; from >= until means never.
func (t *trial) certainly(w *work) (s span[*work], entries []int) {
	if w.sure == nil {
		s, entries = t.findSure(w)
		w.sure, w.surely = &s, entries
	}
	return *w.sure, slices.Clone(w.surely)
}

func (t *trial) findSure(w *work) (s span[*work], entries []int) {
	s = span[*work]{from: forever, until: -forever, of: w}
	first, last := -1, -1
	leased := false
	for _, seen := range w.seen {
		if !seen.held() {
			continue
		}
		if seen.ended < s.from {
			s.from, first = seen.ended, seen.entry
		}
		if seen.called && seen.began > s.until {
			s.until, last = seen.began, seen.entry
		}
		leased = leased || seen.LeaseExpiresAt != nil
	}
	if first < 0 {
		return s, nil
	}
	end := t.letGo(w)
	if leased {
		end = min(end, t.leaseOver(w))
	}
	s.until = max(s.until, end)
	return s, []int{first, last}
}

// leaseOver returns a moment before which the lease of held work was not over, as far as anybody knew. Each
// extension makes the lease end later, unless the clock was set back before it: then any of the lease's ends may be the
// last. The same is true of work that was put aside and taken up again.
func (t *trial) leaseOver(w *work) history.Clock {
	last, first, told := history.Clock(0), forever, false
	for _, seen := range w.seen {
		if !seen.held() || seen.LeaseExpiresAt == nil {
			continue
		}
		since := seen.began
		if assigned, known := t.clock.after(seen.AssignedAt); known {
			since = max(since, assigned)
		}
		if at, known := t.clock.reaches(*seen.LeaseExpiresAt, since); known {
			last, first, told = max(last, at), min(first, at), true
		}
	}
	if !t.clock.jumped() && !t.takenUp(w) || !told {
		return last
	}
	for _, i := range w.let { // a user who hears that it is lost may have extended it before
		if c := t.entries[i].Call; c.Kind == history.Extend && c.Status/100 != 2 {
			first = min(first, c.Began)
		}
	}
	return first
}

// letGo returns when something first began that may have ended a holding, apart from its lease.
func (t *trial) letGo(w *work) history.Clock {
	end := forever
	for _, i := range w.let {
		if c := t.entries[i].Call; lets(c) {
			end = min(end, c.Began)
			break
		}
	}
	for _, i := range t.releases {
		if c := t.entries[i].Call; t.mayRelease(c, w) {
			return min(end, c.Began)
		}
	}
	return end
}

// dryRun is the outcome of a release that only counts.
const dryRun = "dry-run"

func (t *trial) mayRelease(c *history.Call, w *work) bool {
	if c.Outcome == dryRun {
		return false
	}
	if len(w.seen) == 0 {
		return true
	}
	told := w.seen[0].workBody
	if k := t.task(told.Task); c.Kind == history.Away && k != nil && !k.letsGo() {
		return false
	}
	return (c.To == "" || c.To == told.User) && (c.Task == "" || c.Task == told.Task)
}

// judgeCertain finds holdings that certainly overlapped and must not.
func (t *trial) judgeCertain() {
	type place struct {
		task, item string
		slot       int
	}
	type own struct {
		task, item string
		who        history.Who
	}
	places, owners, groups := map[place][]span[*work]{}, map[own][]span[*work]{}, map[itemKey][]span[*work]{}
	for _, w := range t.works {
		s, _ := t.certainly(w)
		if s.from >= s.until {
			continue
		}
		t.judged("certain holdings")
		told := w.seen[0]
		p := place{told.Task, told.Item, told.Slot}
		places[p] = append(places[p], s)
		o := own{told.Task, told.Item, history.Who{User: told.User, Instance: told.Instance}}
		owners[o] = append(owners[o], s)
		if w.row != nil && w.row.Exclusive != nil {
			g := itemKey{w.row.Task, *w.row.Exclusive}
			groups[g] = append(groups[g], s)
		}
	}
	for p, spans := range places {
		t.judgeTwo(spans, "place %d of item %q of %s", p.slot, p.item, p.task)
	}
	for o, spans := range owners {
		t.judgeTwo(spans, "item %q of %s, which one holder held twice,", o.item, o.task)
	}
	for g, spans := range groups {
		t.judgeTwo(spans, "the exclusive group %q", g.item)
	}
}

func (t *trial) judgeTwo(spans []span[*work], what string, args ...any) {
	overlaps(spans, func(a, b span[*work]) {
		_, one := t.certainly(a.of)
		_, two := t.certainly(b.of)
		args := append(args, a.of.told(), seconds(a.from), seconds(a.until), b.of.told(), seconds(b.from), seconds(b.until))
		t.broken(HeldOnce, append(one, two...), what+
			" was held by two, as they were told: %s from %s to %s, and %s from %s to %s",
			args...)
	})
}

// told names the holders of a holding, by the answers that they got.
func (w *work) told() string {
	b := w.seen[0].workBody
	return b.User + instance(b.Instance) + " (work " + itoa(w.id) + ")"
}

// seconds formats a time of the run.
func seconds(d time.Duration) string {
	if d == forever {
		return "the end"
	}
	return d.Round(time.Millisecond).String()
}
