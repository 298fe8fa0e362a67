package checker

import (
	"cmp"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// place is an item's position among those that a round could hand out; lower is better.
type place struct {
	first  int   // the negated priority, for an inbox
	second int64 // the rank, or the item's age
}

func (p place) before(o place) bool {
	return cmp.Or(cmp.Compare(p.first, o.first), cmp.Compare(p.second, o.second)) < 0
}

// orderJudge judges that requests were served in their order.
type orderJudge struct{ *trial }

// place returns the position of this work's item; false means unknown.
func (t orderJudge) place(w *work) (place, bool) {
	if w.row.Rank != nil {
		return place{0, *w.row.Rank}, true
	}
	it := t.items[itemKey{w.row.Task, w.row.Item}]
	if w.row.Run != nil || len(it.pushed) != 1 {
		return place{}, false
	}
	return place{-it.pushed[0].Priority, it.pushed[0].ID}, true
}

// barred reports whether a rule may have kept a user from an item: the user returned it to others, or has it already
// and it has several places, or has the same item under a conflicting task, or it needs something.
func (t *trial) barred(user string, key itemKey) bool {
	it, k := t.items[key], t.tasks[key.task]
	if k == nil {
		return true
	}
	if it != nil && slices.ContainsFunc(it.works, func(w *work) bool { return w.row.User == user && (w.row.ToOthers || !it.single()) }) {
		return true
	}
	if !k.rules {
		return false
	}
	if it != nil && (it.mayNeed() || k.once && slices.ContainsFunc(it.works, func(w *work) bool { return w.row.User == user })) {
		return true
	}
	for other := range t.tasks {
		o := t.items[itemKey{other, key.item}]
		if o != nil && other != key.task && slices.ContainsFunc(o.works, func(w *work) bool { return w.row.User == user }) {
			return true
		}
	}
	return false
}

// passed reports whether a request ended as it did because of a rule or a limit, or could not be served any more.
func passed(row *history.RequestRow) bool {
	return row.State == "cancelled" || row.Reason != nil && slices.Contains([]string{"rules", "at_limit", "paused", "away"}, *row.Reason)
}

// judgeRounds: within a round requests are served by id, each with the best that it may have.
func (t orderJudge) judgeRounds() {
	type round struct{ task, id int64 }
	rounds := map[round][]*request{}
	for _, r := range t.requests {
		if r.row != nil && r.row.Round != nil {
			k := round{r.row.Task, *r.row.Round}
			rounds[k] = append(rounds[k], r)
		}
	}
	for _, answered := range rounds {
		slices.SortFunc(answered, byID)
		t.judged("rounds")
		t.judgeRound(answered)
	}
}

func (t orderJudge) judgeRound(answered []*request) {
	k := t.tasks[answered[0].row.Task]
	limited := k == nil || slices.ContainsFunc(k.versions, func(v *history.VersionRow) bool { return v.MaxOpen != nil })
	type served struct {
		*request
		worst place
		known bool // it got something with a known place
		short bool // it got less than it wanted, and no limit is the reason
	}
	var before []served
	for _, r := range answered {
		for _, w := range r.works {
			p, known := t.place(w)
			for _, a := range before {
				better := known && a.known && p.before(a.worst)
				if !better && !a.short || t.barred(a.row.User, itemKey{w.row.Task, w.row.Item}) {
					continue
				}
				t.broken(InOrder, nil,
					"in round %d request %d of %s was served before request %d of %s, and the latter got what the former could have had: %s",
					*r.row.Round, a.id, a.row.User, r.id, r.row.User, w.describe())
			}
		}
		s := served{request: r, short: r.row.Assigned < r.row.Wanted && !limited && !passed(r.row)}
		for _, w := range r.works {
			if p, known := t.place(w); known && (!s.known || s.worst.before(p)) {
				s.worst, s.known = p, true
			}
		}
		before = append(before, s)
	}
}

// judgeOvertaking: a request that was answered before another was sent is never served after it.
func (t orderJudge) judgeOvertaking() {
	byTask := map[int64][]*waiter{}
	for _, r := range t.requests {
		if r.row == nil || len(r.seen) == 0 || r.row.Task == 0 {
			continue
		}
		w := &waiter{request: r, answered: forever, end: forever, endBy: forever, until: forever}
		for _, s := range r.seen {
			w.answered = min(w.answered, s.ended)
		}
		if r.row.CompletedAt != nil {
			w.end, w.endBy = t.stamped(*r.row.CompletedAt)
		}
		byTask[r.row.Task] = append(byTask[r.row.Task], w)
	}
	for _, waiting := range byTask {
		t.judgeOrder(waiting)
	}
}

// waiter is a request, with the time by which it was certainly recorded, on the harness's clock, and bounds for its
// end, as stamped returns them.
type waiter struct {
	*request
	answered   history.Clock
	end, endBy time.Duration // bounds
	until      time.Duration // the latest end of those that were answered no later
}

func (t orderJudge) judgeOrder(waiting []*waiter) {
	first := slices.DeleteFunc(slices.Clone(waiting), func(w *waiter) bool { return passed(w.row) })
	slices.SortFunc(first, func(a, b *waiter) int { return cmp.Or(cmp.Compare(a.answered, b.answered), byID(a.request, b.request)) })
	for i, w := range first {
		w.until = w.end
		if i > 0 {
			w.until = max(w.end, first[i-1].until)
		}
	}
	for _, b := range waiting {
		sent, known := t.sent(b.id)
		if b.row.Assigned == 0 || !known {
			continue
		}
		t.judged("served requests that might have overtaken")
		n, _ := slices.BinarySearchFunc(first, sent, func(w *waiter, at history.Clock) int { return cmp.Compare(w.answered, at) })
		for i := n - 1; i >= 0 && first[i].until > b.endBy; i-- {
			if a := first[i]; a.end > b.endBy && !sameRound(a.row, b.row) && t.overtaken(a.request, b.request) {
				t.broken(InOrder, slices.Concat(a.entriesOf(), b.entriesOf()),
					"request %d of %s was answered by %s, and request %d of %s, sent at %s, was served before it",
					a.id, a.row.User, seconds(a.answered), b.id, b.row.User, seconds(sent))
				break
			}
		}
	}
}

func sameRound(a, b *history.RequestRow) bool {
	return a.Round != nil && b.Round != nil && *a.Round == *b.Round
}

// overtaken reports whether no rule can explain that b got an item and a, who waited, did not: a may have had at least
// one of b's items. Users who wanted several and may not have some are left aside: they may wait for others, while a
// smaller request is served.
func (t orderJudge) overtaken(a, b *request) bool {
	k := t.tasks[a.row.Task]
	if a.row.Wanted > 1 && (k.rules || t.declined(a.row.User, k.ID)) {
		return false
	}
	free := false
	for _, w := range b.works {
		if a.row.Wanted > 1 && !t.items[itemKey{k.ID, w.row.Item}].single() {
			return false
		}
		free = free || !t.barred(a.row.User, itemKey{k.ID, w.row.Item})
	}
	return free
}

// declined reports whether a user has ever returned an item of a task to others.
func (t *trial) declined(user string, task int64) bool {
	if t.returned == nil {
		t.returned = map[asker]bool{}
		for _, w := range t.works {
			if w.row != nil && w.row.ToOthers {
				t.returned[asker{history.Who{User: w.row.User}, itoa(w.row.Task)}] = true
			}
		}
	}
	return t.returned[asker{history.Who{User: user}, itoa(task)}]
}
