package plan

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ledger is the naive twin's only state: one line for each grant. Everything else is counted from it again and again, as
// the database counts rows.
type ledger struct {
	items []Item
	lines []line
}

type line struct {
	holder     Holder
	item, slot int
}

// numbers returns the numbers of the item's held places.
func (l *ledger) numbers(item int) []int {
	numbers := slices.Clone(l.items[item].Taken)
	for _, x := range l.lines {
		if x.item == item {
			numbers = append(numbers, x.slot)
		}
	}
	return numbers
}

// available reports whether a user whom no rule bars could have a place of the item.
func (l *ledger) available(item int) bool {
	if len(l.numbers(item)) >= l.items[item].Slots {
		return false
	}
	for other, it := range l.items {
		if group := it.Exclusive; group != "" && group == l.items[item].Exclusive && (it.Busy || len(l.numbers(other)) > 0) {
			return false
		}
	}
	return true
}

// allowed reports whether no rule keeps the holder from the item.
func (l *ledger) allowed(h Holder, item int) bool {
	for _, user := range l.items[item].Barred {
		if user == h.User {
			return false
		}
	}
	for _, x := range l.lines {
		if x.item == item && x.holder == h {
			return false
		}
	}
	for _, holder := range l.items[item].Holders {
		if holder == h {
			return false
		}
	}
	return true
}

// give hands out one place after the other, up to n, each time searching from the best item.
func (l *ledger) give(h Holder, n int) (grants []Grant) {
	for len(grants) < n {
		best := -1
		for item := len(l.items) - 1; item >= 0; item-- {
			if l.available(item) && l.allowed(h, item) {
				best = item
			}
		}
		if best < 0 {
			break
		}
		slot := 0
		for taken := true; taken; taken = slices.Contains(l.numbers(best), slot) {
			slot++
		}
		l.lines = append(l.lines, line{h, best, slot})
		grants = append(grants, Grant{best, slot})
	}
	return grants
}

// would returns what give would hand out.
func (l *ledger) would(h Holder, n int) int {
	copied := ledger{l.items, slices.Clone(l.lines)}
	return len(copied.give(h, n))
}

// room returns how much the request may have: -1 if its user is in none of the task's groups.
func room(rules Rules, r Request, l *ledger) int {
	member := r.Anything || len(rules.Groups) == 0
	for _, g := range r.Groups {
		for _, wanted := range rules.Groups {
			member = member || g == wanted
		}
	}
	if !member {
		return -1
	}
	if rules.MaxOpen == 0 {
		return r.Wanted
	}
	open := r.Open
	for _, x := range l.lines {
		if x.holder.User == r.Holder.User {
			open++
		}
	}
	return max(0, min(r.Wanted, rules.MaxOpen-open))
}

var stranger = Holder{User: "a stranger", Instance: "\x00"}

// twin is a slow, obviously correct Assign, written independently.
func twin(rules Rules, requests []Request, supply Supply) Plan {
	l := &ledger{items: supply.Items}
	plan := Plan{Answers: []Answer{}}
	for _, r := range requests {
		may := room(rules, r, l)
		a := Answer{Request: r.ID, Outcome: None}
		if may == -1 {
			a.Reason = Barred
		} else if may == 0 {
			a.Reason = AtLimit
		} else if plan.Spent {
			a.Outcome = Wait
		} else {
			can, anybody := l.would(r.Holder, may), l.would(stranger, may)
			switch {
			case can < may && supply.More:
				return Plan{Short: true}
			case can < may && supply.Cut && supply.Source == Shelf && !r.Ran, can < r.Wanted && supply.Stale:
				a.Outcome = Wait
				plan.Spent = anybody < may
			case can > 0:
				a.Grants = l.give(r.Holder, may)
				a.Outcome = Partial
				switch {
				case can == r.Wanted:
					a.Outcome = Assigned
				case can == may:
					a.Reason = AtLimit
				case anybody > can:
					a.Reason = Barred
				}
			case supply.Cut && supply.Source != Inbox && anybody == 0 && (len(l.lines) > 0 || len(supply.Items) == 0 || supply.Used):
				a.Outcome = Wait
				plan.Spent = supply.Source == Shelf
			default:
				a.Reason = map[bool]Reason{true: AllHeld, false: Barred}[anybody == 0]
				if !supply.Usable {
					a.Reason = NoMatch
				}
				if r.Lingers {
					a.Outcome = Linger
				}
			}
		}
		plan.Answers = append(plan.Answers, a)
	}
	return plan
}

// check compares the plan with the twin's, and checks the invariants of both.
func check(t *testing.T, rules Rules, requests []Request, supply Supply) Plan {
	t.Helper()
	plan := Assign(rules, requests, supply)
	if want := twin(rules, requests, supply); !reflect.DeepEqual(want, plan) {
		t.Fatalf("%+v\n%+v\n%+v\ntwin -, plan +\n%s", rules, requests, supply, cmp.Diff(want, plan))
	}
	checkInvariants(t, rules, requests, supply, plan)
	return plan
}

// checkReading reads only the first n items. If they are enough, the plan must be the same as for all items.
func checkReading(t *testing.T, rules Rules, requests []Request, supply Supply, n int) {
	t.Helper()
	whole := Assign(rules, requests, supply)
	part := supply
	part.Items, part.More = supply.Items[:n], true
	plan := check(t, rules, requests, part)
	if !plan.Short && !reflect.DeepEqual(whole, plan) {
		t.Fatalf("%+v\n%+v\n%+v\nall -, the first %d +\n%s", rules, requests, supply, n, cmp.Diff(whole, plan))
	}
}

func checkOne(t *testing.T, draw func(n int) int) Plan {
	t.Helper()
	rules, requests, supply := situationOf(draw)
	plan := check(t, rules, requests, supply)
	checkReading(t, rules, requests, supply, draw(len(supply.Items)+1))
	return plan
}

func TestAssignAgainstANaiveTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[string]int{}
	for range 100_000 {
		plan := checkOne(t, random.IntN)
		for _, a := range plan.Answers {
			seen[outcomes[a.Outcome]+reasons[a.Reason]]++
		}
		if plan.Spent {
			seen["spent"]++
		}
	}
	for _, what := range []string{"assigned", "partial", "partial: at limit", "partial: barred", "waits", "spent", "none: no match", "none: all held", "none: barred",
		"none: at limit", "lingers: no match", "lingers: all held", "lingers: barred"} {
		if seen[what] < 500 {
			t.Errorf("%q came %d times: the cases are not random enough", what, seen[what])
		}
	}
}

// FuzzAssign takes its choices from bytes; when they are used up, it takes the first of everything. Its seeds are in
// testdata/fuzz/FuzzAssign, named after what they found.
func FuzzAssign(f *testing.F) {
	f.Fuzz(func(t *testing.T, choices []byte) {
		next := 0
		checkOne(t, func(n int) int {
			if next == len(choices) {
				return 0
			}
			next++
			return int(choices[next-1]) % n
		})
	})
}
