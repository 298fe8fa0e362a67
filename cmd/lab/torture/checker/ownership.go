package checker

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"getwork/cmd/lab/torture/history"
)

// The holders of an item are a set in a register: taking a place adds a holder, and letting go removes one. porcupine
// looks for an order of all operations on an item in which each step is possible, and which agrees with when each was
// requested and answered. A call that was never answered may have happened at any time after it was sent or, as the
// last operation, never.

// step is one operation on the holders of an item.
type step struct {
	take   bool
	work   int64
	slot   int
	places int // the item's; 0: unlimited
	holder string
}

// holding is one holder's part of the state of an item, which is the sorted list of all holdings.
func (s step) holding() string { return strconv.Itoa(s.slot) + " " + itoa(s.work) + " " + s.holder }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// ownership is the model of an item.
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

// judgeOwnership searches for an order for each item, starting with those of fewer steps, until its time is over.
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

// stepsOf returns the steps of one holding: it was taken, and perhaps let go of.
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
	if began == forever || !known && began < from { // unknown, so it may have been at any time
		began = from
	}
	// It was still held when the last client asked that saw it so.
	for _, seen := range w.seen {
		if seen.held() && seen.called {
			began = max(began, seen.began)
		}
	}
	return []porcupine.Operation{taken, {Input: s, Call: int64(max(began, from)), Return: int64(let)}}
}

// asked returns when somebody first asked for what became this work; false means that nobody is known to have.
func (t *trial) asked(w *work) (history.Clock, bool) {
	if w.row.Request == nil {
		return 0, false
	}
	if began, known := t.sent(*w.row.Request); known {
		return began, true
	}
	return 0, false
}
