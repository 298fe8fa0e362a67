package plan

import (
	"slices"
	"testing"
)

// checkInvariants checks what is true of every plan, whatever the rules.
func checkInvariants(t *testing.T, requests []Request, supply Supply, plan Plan) {
	t.Helper()
	if plan.Short {
		if len(plan.Answers) > 0 || plan.Spent || plan.Left || !supply.More {
			t.Fatalf("a short plan says something, or there is no more to read: %+v", plan)
		}
		return
	}
	if len(plan.Answers) != len(requests) {
		t.Fatalf("%d answers for %d requests", len(plan.Answers), len(requests))
	}
	l := &ledger{items: supply.Items}
	waited := false // for a run, on the shelf, because there was too little
	for i, a := range plan.Answers {
		r := requests[i]
		may := room(r, l)
		if a.Request != r.ID {
			t.Fatalf("answer %d is for request %d, want %d", i, a.Request, r.ID)
		}
		if got := len(a.Grants); got > max(0, may) ||
			(got > 0) != (a.Outcome == Assigned || a.Outcome == Partial) || (got == r.Wanted) != (a.Outcome == Assigned) {
			t.Fatalf("request %d wants %d, may have %d, gets %d, and ends as %v", r.ID, r.Wanted, may, got, outcomes[a.Outcome])
		}
		if a.Outcome == Partial && (a.Reason == AtLimit) != (len(a.Grants) == may) ||
			a.Outcome != Partial && (a.Reason != NoReason) != (a.Outcome == None || a.Outcome == Linger) {
			t.Fatalf("request %d %v with reason %q", r.ID, outcomes[a.Outcome], reasons[a.Reason])
		}
		if supply.Stale && (a.Outcome == Partial || a.Outcome == Linger || a.Outcome == None && may > 0) {
			t.Fatalf("request %d: an expired shelf answers %s%s", a.Request, outcomes[a.Outcome], reasons[a.Reason])
		}
		if a.Outcome == Wait && !r.Elsewhere && (!supply.Cut && !supply.Stale || supply.Source == Inbox) {
			t.Fatalf("request %d waits, though no run could find more", r.ID)
		}
		if r.Elsewhere && a.Outcome != Wait && len(a.Grants) == 0 {
			t.Fatalf("request %d, whose run is elsewhere, %v", r.ID, outcomes[a.Outcome])
		}
		if may <= 0 && !r.Elsewhere && (a.Outcome != None || a.Reason != r.Why) {
			t.Fatalf("request %d may have nothing%s, and %v%s", r.ID, reasons[r.Why], outcomes[a.Outcome], reasons[a.Reason])
		}
		if waited && may > 0 && a.Outcome != Wait {
			t.Fatalf("request %d overtakes one that waits for a run", r.ID)
		}
		waited = waited || a.Outcome == Wait && !r.Elsewhere && supply.Source == Shelf && l.would(stranger, may) < may
		worst := -1
		for _, g := range a.Grants {
			if !l.available(g.Item) || !l.allowed(r, g.Item) {
				t.Fatalf("request %d gets item %d, which it may not have", r.ID, g.Item)
			}
			if taken := l.numbers(g.Item); g.Slot < 1 || g.Slot > supply.Items[g.Item].Slots || slices.Contains(taken, g.Slot) {
				t.Fatalf("request %d gets place %d of item %d, of which %v are taken", r.ID, g.Slot, g.Item, taken)
			}
			if g.Item <= worst {
				t.Fatalf("request %d gets item %d after item %d", r.ID, g.Item, worst)
			}
			for better := worst + 1; better < g.Item; better++ {
				if l.available(better) && l.allowed(r, better) {
					t.Fatalf("request %d gets item %d, and could have had %d", r.ID, g.Item, better)
				}
			}
			worst = g.Item
			l.lines = append(l.lines, line{r.Holder, g.Item, g.Slot})
		}
		if ended := a.Outcome != Wait && len(a.Grants) < may; ended && l.would(r, 1) > 0 {
			t.Fatalf("request %d may have %d, gets %d, and there is more for it", r.ID, may, len(a.Grants))
		}
	}
	if plan.Spent != waited {
		t.Fatalf("spent is %v; too little was left on the shelf for somebody: %v", plan.Spent, waited)
	}
	checkConstraints(t, requests, l)
}

// checkConstraints checks the rows that the plan would write against the database's constraints.
func checkConstraints(t *testing.T, requests []Request, l *ledger) {
	t.Helper()
	left, groups := map[string]int{}, map[string]int{}
	for _, r := range requests {
		left[r.Holder.User] = max(left[r.Holder.User], r.Room)
	}
	for item, it := range l.items {
		slots, holders := map[int]bool{}, map[Holder]bool{}
		held, given := len(it.Taken), 0
		for _, n := range it.Taken {
			slots[n] = true
		}
		for _, h := range it.Holders {
			holders[h] = true
		}
		for _, x := range l.lines {
			if x.item != item {
				continue
			}
			if slots[x.slot] || holders[x.holder] {
				t.Fatalf("place %d of item %d, or %v on it, twice", x.slot, item, x.holder)
			}
			if slices.ContainsFunc(it.Barred, func(b Bar) bool { return b.User == x.holder.User }) {
				t.Fatalf("%v is barred from item %d", x.holder, item)
			}
			for lower := 1; lower < x.slot; lower++ {
				if !slots[lower] {
					t.Fatalf("place %d of item %d is given while %d is free", x.slot, item, lower)
				}
			}
			slots[x.slot], holders[x.holder] = true, true
			given++
			if left[x.holder.User]--; left[x.holder.User] < 0 {
				t.Fatalf("%v gets more than there is room for", x.holder)
			}
		}
		if given > 0 && held+given > it.Slots {
			t.Fatalf("item %d of %d places is held %d times", item, it.Slots, held+given)
		}
		if it.Exclusive != "" && given > 0 {
			if groups[it.Exclusive] += given; groups[it.Exclusive] > 1 || it.Busy || held > 0 {
				t.Fatalf("a second member of group %q", it.Exclusive)
			}
		}
	}
}
