package checker

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"getwork/cmd/internal/torture/history"
)

// The holders of an item are a set in a register: to take a place adds one, to let go of it removes him. porcupine looks for
// an order of all that was done to it in which each step was possible, and that agrees with when each was asked for and
// answered. What was never answered may have happened at any time after it was asked for, or, being last, never.

// step is one operation on the holders of an item.
type step struct {
	take   bool
	work   int64
	slot   int
	places int // of the item; 0: as many as there are numbers
	holder string
}

// holding is how one holder stands in the state of an item, which is all of them, sorted.
func (s step) holding() string { return strconv.Itoa(s.slot) + " " + itoa(s.work) + " " + s.holder }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// ownership is what an item may go through.
var ownership = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		s := input.(step)
		var held []string
		if state != "" {
			held = strings.Split(state.(string), "\n")
		}
		if !s.take {
			i := slices.Index(held, s.holding())
			if i < 0 {
				return false, state
			}
			return true, strings.Join(slices.Delete(held, i, i+1), "\n")
		}
		if s.places > 0 && len(held) >= s.places {
			return false, state
		}
		for _, h := range held {
			part := strings.SplitN(h, " ", 3)
			if part[0] == strconv.Itoa(s.slot) || part[2] == s.holder {
				return false, state
			}
		}
		held = append(held, s.holding())
		slices.Sort(held)
		return true, strings.Join(held, "\n")
	},
}

// judgeOwnership looks for an order for each item, those of fewer steps first, until its time is over.
func (t *trial) judgeOwnership() {
	steps := map[itemKey][]porcupine.Operation{}
	for key, it := range t.items {
		for _, w := range it.works {
			steps[key] = append(steps[key], t.stepsOf(it, w)...)
		}
	}
	keys := make([]itemKey, 0, len(steps))
	for key := range steps {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b itemKey) int {
		return cmp.Or(cmp.Compare(len(steps[a]), len(steps[b])), cmp.Compare(a.task, b.task), cmp.Compare(a.item, b.item))
	})
	until := time.Now().Add(t.Linearize)
	for _, key := range keys {
		left := time.Until(until)
		if left <= 0 {
			t.report.Undecided++
			continue
		}
		t.judged("orders of an item's holders")
		switch porcupine.CheckOperationsTimeout(ownership, steps[key], left) {
		case porcupine.Unknown:
			t.report.Undecided++
		case porcupine.Illegal:
			var names []string
			for _, w := range t.items[key].works {
				names = append(names, w.describe())
			}
			t.broken(HeldOnce, nil,
				"there is no order in which the holders of item %q could have held it as they were told: %s",
				key.item, strings.Join(names, "; "))
		}
	}
}

// stepsOf are the steps of one holding: it was taken, and perhaps let go of.
func (t *trial) stepsOf(it *item, w *work) []porcupine.Operation {
	s := step{take: true, work: w.id, slot: w.row.Slot, places: it.places, holder: w.row.User + "/" + w.row.Instance}
	from, known := t.asked(w)
	told, let := forever, forever
	for _, seen := range w.seen {
		if seen.held() {
			told = min(told, seen.ended)
		} else {
			let = min(let, seen.ended)
		}
	}
	taken := porcupine.Operation{Input: s, Call: int64(from), Return: int64(min(told, let))}
	if w.row.State == "held" {
		return []porcupine.Operation{taken}
	}
	s.take = false
	began := t.letGo(w)
	if w.row.LeaseExpiresAt != nil {
		began = min(began, t.leaseOver(w))
	}
	if began == forever || !known && began < from { // nobody knows how; so it may have been at any time
		began = from
	}
	// It was held still when the last who saw it so asked.
	for _, seen := range w.seen {
		if seen.held() && seen.called {
			began = max(began, seen.began)
		}
	}
	return []porcupine.Operation{taken, {Input: s, Call: int64(max(began, from)), Return: int64(let)}}
}

// asked is when somebody first asked for what became this work; false: nobody is known to have.
func (t *trial) asked(w *work) (history.Clock, bool) {
	if w.row.Request == nil {
		return 0, false
	}
	if began, known := t.sent(*w.row.Request); known {
		return began, true
	}
	return 0, false
}
