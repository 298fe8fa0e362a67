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
func (l *ledger) allowed(r Request, item int) bool {
	h := r.Holder
	for _, need := range l.items[item].Needs {
		has := r.Anything
		for _, owned := range append(slices.Clone(r.Groups), r.Skills...) {
			has = has || owned == need
		}
		if !has {
			return false
		}
	}
	for _, bar := range l.items[item].Barred {
		if bar.User == h.User {
			return false
		}
	}
	has := func(other Holder) bool { return other == h || l.items[item].Once && other.User == h.User }
	for _, x := range l.lines {
		if x.item == item && has(x.holder) {
			return false
		}
	}
	return !slices.ContainsFunc(l.items[item].Holders, has)
}

// give hands out one place after the other, up to n, each time searching from the best item.
func (l *ledger) give(r Request, n int) (grants []Grant) {
	for len(grants) < n {
		best := -1
		for item := len(l.items) - 1; item >= 0; item-- {
			if l.available(item) && l.allowed(r, item) {
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
		l.lines = append(l.lines, line{r.Holder, best, slot})
		grants = append(grants, Grant{best, slot})
	}
	return grants
}

// would returns what give would hand out.
func (l *ledger) would(r Request, n int) int {
	copied := ledger{l.items, slices.Clone(l.lines)}
	return len(copied.give(r, n))
}

// room returns how much the request may have.
func room(r Request, l *ledger) int {
	left := r.Room
	for _, x := range l.lines {
		if x.holder.User == r.Holder.User {
			left--
		}
	}
	return max(0, min(r.Wanted, left))
}

// stranger is barred by no rule.
var stranger = Request{Holder: Holder{User: "a stranger", Instance: "\x00"}, Anything: true}

// twin is a slow, obviously correct Assign, written independently.
func twin(requests []Request, supply Supply) Plan {
	l := &ledger{items: supply.Items}
	plan := Plan{Answers: []Answer{}}
	for _, r := range requests {
		may := room(r, l)
		a := Answer{Request: r.ID, Outcome: None}
		if may == 0 && r.Elsewhere {
			a.Outcome = Wait
		} else if may == 0 {
			a.Reason = r.Why
		} else if plan.Spent {
			a.Outcome = Wait
		} else {
			can, anybody := l.would(r, may), l.would(stranger, may)
			switch {
			case can < may && supply.More:
				return Plan{Short: true}
			case r.Elsewhere && (can == 0 || can < r.Wanted && supply.Stale):
				a.Outcome = Wait
			case !r.Elsewhere && can < may && supply.Cut && supply.Source == Shelf, can < r.Wanted && supply.Stale:
				a.Outcome = Wait
				plan.Spent = anybody < may
			case can > 0:
				a.Grants = l.give(r, may)
				a.Outcome = Partial
				switch {
				case can == r.Wanted:
					a.Outcome = Assigned
				case can == may:
					a.Reason = r.Why
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
	plan.Left = l.would(stranger, 1) > 0
	return plan
}

// check compares the plan with the twin's, and checks the invariants of both.
func check(t *testing.T, requests []Request, supply Supply) Plan {
	t.Helper()
	plan := Assign(requests, supply)
	if want := twin(requests, supply); !reflect.DeepEqual(want, plan) {
		t.Fatalf("%+v\n%+v\ntwin -, plan +\n%s", requests, supply, cmp.Diff(want, plan))
	}
	checkInvariants(t, requests, supply, plan)
	return plan
}

// checkReading reads only the first n items. If they are enough, the plan must be the same as for all items.
func checkReading(t *testing.T, requests []Request, supply Supply, n int) {
	t.Helper()
	whole := Assign(requests, supply)
	part := supply
	part.Items, part.More = supply.Items[:n], true
	plan := check(t, requests, part)
	plan.Left = plan.Left || whole.Left // perhaps of what was not read
	if !plan.Short && !reflect.DeepEqual(whole, plan) {
		t.Fatalf("%+v\n%+v\nall -, the first %d +\n%s", requests, supply, n, cmp.Diff(whole, plan))
	}
}

// checkReadingWho plans for the first n requests only. If nothing is left after them, the plan for all of them must answer these
// in the same way, and give the others nothing.
func checkReadingWho(t *testing.T, requests []Request, supply Supply, n int) {
	t.Helper()
	part := check(t, requests[:n], supply)
	if part.Short || part.Left || supply.More {
		return
	}
	whole := Assign(requests, supply)
	if !reflect.DeepEqual(whole.Answers[:n], part.Answers) {
		t.Fatalf("%+v\n%+v\nall -, the first %d +\n%s", requests, supply, n, cmp.Diff(whole.Answers[:n], part.Answers))
	}
	for _, a := range whole.Answers[n:] {
		if len(a.Grants) > 0 {
			t.Fatalf("%+v\n%+v\nnothing is left after %d requests, and %d gets something: %+v", requests, supply, n, a.Request, whole)
		}
	}
}

func TestBars(t *testing.T) {
	ann, bob := Holder{User: "Ann"}, Holder{User: "Bob"}
	for want, it := range map[Because]Item{
		Free:      {Slots: 2, Taken: []int{1}, Holders: []Holder{{User: "Ann", Instance: "two"}}, Barred: []Bar{{"Bob", LetGo}}, Needs: []string{"french", "desk"}},
		Full:      {Slots: 1, Taken: []int{1}, Holders: []Holder{ann}, Exclusive: "g", Busy: true},
		GroupHeld: {Slots: 1, Exclusive: "g", Busy: true, Barred: []Bar{{"Ann", LetGo}}},
		HoldsIt:   {Slots: 3, Taken: []int{1, 2}, Holders: []Holder{bob, ann}, Barred: []Bar{{"Ann", LetGo}}},
		FourEyes:  {Slots: 1, Barred: []Bar{{"Bob", LetGo}, {"Ann", FourEyes}, {"Ann", LetGo}}},
		Completed: {Slots: 2, Once: true, Taken: []int{1}, Holders: []Holder{{User: "Bob", Instance: "two"}}, Barred: []Bar{{"Ann", Completed}}},
		LetGo:     {Slots: 1, Barred: []Bar{{"Bob", FourEyes}, {"Ann", LetGo}}, Needs: []string{"law"}},
		Needs:     {Slots: 1, Barred: []Bar{{"Bob", FourEyes}}, Needs: []string{"french", "law"}},
	} {
		if got := Bars(&Request{Holder: ann, Room: 1, Groups: []string{"desk"}, Skills: []string{"french"}}, &it); got != want {
			t.Errorf("%+v: %d, want %d", it, got, want)
		}
		if got := Bars(&Request{Holder: ann}, &it); got != NoRoom {
			t.Errorf("%+v, and no room: %d, want %d", it, got, NoRoom)
		}
	}
}

// checkBars compares what Bars says of each request and each item with a plan for these two alone.
func checkBars(t *testing.T, requests []Request, items []Item) {
	t.Helper()
	for _, r := range requests {
		r.Wanted, r.Lingers, r.Elsewhere = 1, false, false
		reasonOf := [...]Reason{Free: NoReason, NoRoom: r.Why, Full: AllHeld, GroupHeld: AllHeld, HoldsIt: Barred, FourEyes: Barred, LetGo: Barred, Completed: Barred, Needs: Barred}
		for i := range items {
			a := Assign([]Request{r}, Supply{Source: Inbox, Items: items[i : i+1], Usable: true}).Answers[0]
			because := Bars(&r, &items[i])
			if a.Reason != reasonOf[because] || (a.Outcome == Assigned) != (because == Free) || because == Free && a.Grants[0].Slot != items[i].Place(0) {
				t.Fatalf("%+v and %+v: bars %d, plan %+v", r, items[i], because, a)
			}
		}
	}
}

func checkOne(t *testing.T, draw func(n int) int) Plan {
	t.Helper()
	requests, supply := situationOf(draw)
	plan := check(t, requests, supply)
	checkBars(t, requests, supply.Items)
	checkReading(t, requests, supply, draw(len(supply.Items)+1))
	checkReadingWho(t, requests, supply, draw(len(requests)+1))
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
		if plan.Left {
			seen["left"]++
		}
	}
	for _, what := range []string{"assigned", "partial", "partial: at limit", "partial: barred", "waits", "spent", "left", "none: no match", "none: all held", "none: barred",
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
