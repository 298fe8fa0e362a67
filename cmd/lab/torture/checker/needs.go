package checker

import (
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// mayNeed reports whether an item is known to have needed something.
func (it *item) mayNeed() bool {
	return !it.until.IsZero() || slices.ContainsFunc(it.works, func(w *work) bool { return len(w.row.Needs) > 0 }) ||
		slices.ContainsFunc(it.pushed, func(row *history.ItemRow) bool { return len(row.Needs) > 0 })
}

// sortNeeds notes until when pushed items need something. Of a key that was pushed anew nobody knows which push it is.
func (t *trial) sortNeeds() {
	anew := map[*item]bool{}
	for _, i := range t.calls {
		c := t.entries[i].Call
		k := t.task(c.Task)
		if c.Kind != history.Push || k == nil {
			continue
		}
		for _, key := range c.Items {
			it := t.item(k.ID, key)
			if until := c.NeedsUntil[key]; !anew[it] || it.until.Equal(until) {
				it.until, anew[it] = until, true
			} else {
				it.until = time.Time{}
			}
			k.rules = k.rules || len(c.NeedsUntil) > 0
		}
	}
}

// judgeUntil: an item needs something until its time, and nothing afterwards. A round may have stood still after it has read that.
func (t *trial) judgeUntil(w *work) {
	it := t.items[itemKey{w.row.Task, w.row.Item}]
	if it == nil || it.until.IsZero() || t.clock.jumped() {
		return
	}
	t.judged("what an item needs for a time")
	switch bound := len(w.row.Needs) > 0; {
	case !bound && it.until.Sub(w.row.AssignedAt) > unordered:
		t.broken(Able, nil, "an item that needs something until %s was given as one that needs nothing: %s", it.until, w.describe())
	case bound && w.row.Request != nil && w.row.AssignedAt.Sub(it.until) > unordered:
		t.broken(Able, nil, "an item that needed something until %s was given as one that still does: %s", it.until, w.describe())
	}
}

// judgeNeeds: whoever is given an item has all that it needs: groups, as of their request, or skills. A round may have stood still after it
// has read these. Of those who have never asked, nobody knows their groups.
func (t *trial) judgeNeeds() {
	set, groups, first := map[string][]int{}, map[string][]string{}, map[string]*history.RequestRow{}
	for _, i := range t.calls {
		if c := t.entries[i].Call; c.Kind == history.Skills && !refused(c) {
			set[c.To] = append(set[c.To], i)
		}
	}
	anything := map[string]bool{}
	for i := range t.tables.Requests {
		row := &t.tables.Requests[i]
		if first[row.User] == nil {
			first[row.User] = row
		}
		groups[row.User] = append(groups[row.User], row.Groups...)
		anything[row.User] = anything[row.User] || row.Groups == nil
	}
	for _, w := range t.works {
		if w.row != nil {
			t.judgeUntil(w)
		}
		if w.row == nil || len(w.row.Needs) == 0 {
			continue
		}
		user := w.row.User
		if asked := first[user]; anything[user] || asked == nil || w.row.Request == nil && (t.clock.jumped() || w.row.AssignedAt.Sub(asked.CreatedAt) < unordered) {
			continue
		}
		t.judged("what an item needs, and who was given it")
		has := slices.Concat(groups[user], t.skills(set[user], w))
		if slices.ContainsFunc(w.row.Needs, func(need string) bool { return !slices.Contains(has, need) }) {
			t.broken(Able, set[user], "an item that needs %v was given to somebody who had only %v: %s", w.row.Needs, has, w.describe())
		}
	}
}

// skills returns all that somebody may have been able to do when work was given to them, by the calls that have set it.
func (t *trial) skills(set []int, w *work) (all []string) {
	from, known := t.clock.after(w.row.AssignedAt)
	until, _ := t.clock.by(w.row.AssignedAt)
	if !known {
		from, until = 0, forever
	}
	from -= unordered
	for _, i := range set {
		c := t.entries[i].Call
		ended := c.Ended
		if unknown(c) {
			ended = t.alive(i)
		}
		over := slices.ContainsFunc(set, func(j int) bool {
			later := t.entries[j].Call
			return later.Status/100 == 2 && later.Began > ended && later.Ended < from
		})
		if c.Began <= until && !over {
			all = append(all, c.Skills...)
		}
	}
	return all
}
