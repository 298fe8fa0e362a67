package checker

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"getwork/cmd/lab/torture/history"
)

// doneBy returns how many different users complete an item before it is done.
func (k *task) doneBy(row *history.ItemRow) int {
	if row.DoneBy != nil {
		return *row.DoneBy
	}
	most := 1
	for _, v := range k.versions {
		if v.DoneBy != nil {
			most = max(most, *v.DoneBy)
		}
	}
	return most
}

// judgeSeveral: an item that several are to complete is done if, and only if, so many different users have completed it; and there are
// never more who hold it or have completed it. Which of its rows somebody held is known only if there is one.
func (t *trial) judgeSeveral() {
	for key, it := range t.items {
		k := t.tasks[key.task]
		if k != nil && k.once && !slices.ContainsFunc(k.versions, func(v *history.VersionRow) bool { return !v.Once }) {
			t.judged("items that nobody completes twice")
			t.judgeOnce(it)
		}
		if k == nil || !k.inbox {
			continue
		}
		for _, row := range it.pushed {
			wanted := k.doneBy(row)
			if wanted == 1 {
				continue
			}
			t.judged("items that several complete")
			different := slices.Compact(slices.Sorted(slices.Values(row.CompletedBy)))
			if len(different) != len(row.CompletedBy) || len(different) > wanted || (len(different) == wanted) != (row.DoneAt != nil) {
				t.broken(Several, nil, "item %q of %s is done: %t, and %v of %d have completed it", row.Item, k.Name, row.DoneAt != nil, row.CompletedBy, wanted)
			}
			if len(it.pushed) == 1 {
				t.judgeHolders(k, it, row, wanted)
			}
		}
	}
}

func (t *trial) judgeHolders(k *task, it *item, row *history.ItemRow, wanted int) {
	t.judgeOnce(it)
	var completed []string
	spans := t.kept(it)
	for _, s := range spans {
		if s.of.row.State == "completed" {
			completed = append(completed, s.of.row.User)
		}
	}
	slices.Sort(completed)
	if !slices.Equal(completed, slices.Sorted(slices.Values(row.CompletedBy))) {
		t.broken(Several, nil, "item %q of %s was completed by %v, and its row says by %v", row.Item, k.Name, completed, row.CompletedBy)
	}
	if at := most(spans); len(at) > wanted {
		t.broken(Several, nil, "%d held item %q of %s or had completed it, of %d: %s …", len(at), row.Item, k.Name, wanted, at[len(at)-1].describe())
	}
}

// kept returns when an item was held, or had been completed.
func (t *trial) kept(it *item) []span[*work] {
	spans := t.rows(it.works)
	for i := range spans {
		if spans[i].of.row.State == "completed" {
			spans[i].until = forever
		}
	}
	return spans
}

// judgeOnce: nobody is given what they hold or have completed.
func (t *trial) judgeOnce(it *item) {
	of := map[string][]span[*work]{}
	for _, s := range t.kept(it) {
		of[s.of.row.User] = append(of[s.of.row.User], s)
	}
	for user, own := range of {
		overlaps(own, func(a, b span[*work]) {
			t.broken(Several, nil, "%s was given an item that they held or had completed: %s, then %s", user, a.of.describe(), b.of.describe())
		})
	}
}

// drawn reports whether completed work of that id goes on, of which a share does: its hash is a number from 0 to 1.
func drawn(work int64, share float64) bool {
	sum := sha256.Sum256([]byte(itoa(work)))
	return float64(binary.BigEndian.Uint64(sum[:8])>>11)/(1<<53) < share
}

// judgeOnward: exactly that goes on to another task's inbox which is drawn, once, by the completion that finishes its item.
func (t *trial) judgeOnward() {
	children := map[int64][]*history.ItemRow{}
	for i := range t.tables.Items {
		if row := &t.tables.Items[i]; row.From != nil {
			children[*row.From] = append(children[*row.From], row)
			if w := t.works[*row.From]; w == nil || w.row == nil {
				t.broken(Onward, nil, "item %q was pushed on for work %d, and there is no such row", row.Item, *row.From)
			}
		}
	}
	for id, w := range t.works {
		k := t.tasks[rowTask(w)]
		if k == nil {
			continue
		}
		got := children[id]
		to, share, goes := k.goesOn()
		last, known := t.finished(k, w)
		wanted := goes && last && drawn(id, share)
		if goes && known && w.row.State == "completed" {
			t.judged("completions, and whether they went on")
		}
		switch {
		case len(got) > 1, len(got) == 1 && (got[0].Item != w.row.Item || got[0].Task != to):
			t.broken(Onward, w.let, "%d items were pushed on, the first as %q: %s", len(got), got[0].Item, w.describe())
		case len(got) == 1 && known && !wanted:
			t.broken(Onward, w.let, "it was pushed on, and was not drawn or did not finish its item: %s", w.describe())
		case len(got) == 0 && known && wanted && !t.hindered(itemKey{to, w.row.Item}, w.row):
			t.broken(Onward, w.let, "it was drawn, and nothing was pushed on: %s", w.describe())
		}
	}
}

func rowTask(w *work) int64 {
	if w.row == nil {
		return 0
	}
	return w.row.Task
}

// goesOn returns where a share of what is completed goes, if all versions of the task say the same.
func (k *task) goesOn() (to int64, share float64, goes bool) {
	for i, v := range k.versions {
		if v.Onward == nil || v.Share == nil || i > 0 && (*v.Onward != to || *v.Share != share) {
			return 0, 0, false
		}
		to, share = *v.Onward, *v.Share
	}
	return to, share, len(k.versions) > 0
}

// finished reports whether work was completed, and finished its item. known: that is certain.
func (t *trial) finished(k *task, w *work) (so, known bool) {
	if w.row.State != "completed" || !k.inbox {
		return w.row.State == "completed", true
	}
	it := t.items[itemKey{w.row.Task, w.row.Item}]
	if len(it.pushed) != 1 {
		return false, false
	}
	row := it.pushed[0]
	if k.doneBy(row) == 1 {
		return true, it.single()
	}
	n := len(row.CompletedBy)
	return row.DoneAt != nil && n > 0 && row.CompletedBy[n-1] == w.row.User, true
}

// hindered reports whether an item may have been open in an inbox, or held or put off there, when work was closed. Its closing may have
// stood still before its commit.
func (t *trial) hindered(key itemKey, closed *history.WorkRow) bool {
	it := t.items[key]
	if it == nil {
		return false
	}
	if t.clock.jumped() {
		return true
	}
	from, until := *closed.ClosedAt, closed.ClosedAt.Add(unordered)
	return slices.ContainsFunc(it.pushed, func(row *history.ItemRow) bool {
		return row.PushedAt.Before(until) && (row.DoneAt == nil || !row.DoneAt.Before(from))
	}) || slices.ContainsFunc(it.works, func(w *work) bool {
		over := w.row.ClosedAt != nil && w.row.ClosedAt.Before(from) && w.row.State != "never" && (w.row.AvailableAt == nil || w.row.AvailableAt.Before(from))
		return w.row.AssignedAt.Before(until) && !over
	})
}
