// Package plan decides who gets what ([Assign]), what a node does next for a task ([Next]), and when a shelf is renewed
// ([RefreshIn]).
//
// All are pure functions of values: no context, clock, log, randomness or I/O. Assign's arguments were read under the
// assign lock, and its result is written under the same lock. So every mistake in a decision can be found, and tested,
// here alone. Every rule of a task is an input of Assign: how many places an item has, who may not have it, which items
// exclude each other, how much a user may hold, and who may take the task at all.
package plan

import "slices"

// Holder is a user, or one of several programs under the user's name.
type Holder struct{ User, Instance string }

// Request is one holder's waiting request.
type Request struct {
	ID       int64 // requests are served in the order of their ids
	Holder   Holder
	Wanted   int      // at least 1
	Lingers  bool     // it waits rather than end with nothing
	Open     int      // how much of the task the user holds already; the same in all requests of the user
	Groups   []string // the user's groups
	Ran      bool     // the shelf's run left it to this shelf; in a run's own round: an earlier run left it to a shelf that never answered
	Anything bool     // needs no group: the user is a manager
}

// Rules are the task's rules for every user.
type Rules struct {
	MaxOpen int      // the most that one user may hold; 0 for no limit
	Groups  []string // members of any of these may take the task; empty for everybody
}

// allow reports whether the request's user may take the task at all.
func (r Rules) allow(q Request) bool {
	return q.Anything || len(r.Groups) == 0 || slices.ContainsFunc(q.Groups, func(g string) bool { return slices.Contains(r.Groups, g) })
}

// Item is an item that can be handed out, perhaps not to everybody.
type Item struct {
	Slots     int      // how many holders it may have; 0: nobody may have it now, because the task's recheck has not returned it
	Taken     []int    // the numbers of the held places; after Slots was lowered there may be more than Slots, and higher ones
	Holders   []Holder // the holders of those places; no holder has an item twice
	Barred    []string // users who may not have it, because they had it elsewhere (four eyes) or returned it to others
	Exclusive string   // its group, of which one member is held at a time, by one holder; empty for none
	Busy      bool     // another member of the group is held
}

// Source says where the items come from, which decides what an empty shelf means.
type Source int

const (
	// Shelf is the rest of an earlier run. No request may overtake one that finds too little on it.
	Shelf Source = iota
	// Result is a run's result in its own round. Nothing better exists, so everybody is answered from it.
	Result
	// Inbox is the pushed items. There are no others, and there is no run to wait for.
	Inbox
)

// Supply is what a round can hand out.
type Supply struct {
	Source Source
	Items  []Item // best first
	Cut    bool   // the run found more than it could keep: an empty supply says nothing about the query
	More   bool   // there are further items, which were not read: see Plan.Short
	Usable bool   // there were items, though perhaps none that can be handed out now
	Used   bool   // some of the shelf's items were handed out since its run
	Stale  bool   // the shelf has expired: it hands out while its refresh runs, and says nothing about the query
}

// Outcome is what becomes of a request.
type Outcome int

const (
	// Wait means that the request stays pending, and the next run is for it.
	Wait Outcome = iota
	// Linger means that there is nothing now, and the request stays pending until there is or its time is over.
	Linger
	// Assigned means that the request gets all that it wanted.
	Assigned
	// Partial means that the request gets less than it wanted, because there is no more or it may have no more.
	Partial
	// None means that the request ends with nothing.
	None
)

// Reason says why a request got nothing, or less than it wanted.
type Reason int

// The reasons of None and Linger. Partial has one of the last two, or NoReason.
const (
	NoReason Reason = iota
	NoMatch         // there are no items
	AllHeld         // there are items, but all are held, put off, or excluded by held ones
	Barred          // some could be handed out, but none, or no more, to this user
	AtLimit         // the user holds as much as the limit allows
)

// Grant is one place of one item.
type Grant struct {
	Item int // its index in the supply
	Slot int // the number of the place, from 1; always the lowest free one
}

// Answer is what one request gets.
type Answer struct {
	Request int64 // its id
	Outcome Outcome
	Reason  Reason
	Grants  []Grant // of Assigned and Partial: best first
}

// Plan is one answer for each request, in the order of their ids.
type Plan struct {
	Answers []Answer
	Spent   bool // the shelf ends: a request waits for a run, and none may overtake it
	Short   bool // the plan is void, and has no answers: read more items and plan again
}

// Assign serves the requests in the order given, which must be that of their ids, each with the best items that it
// may have.
//
// A whole supply answers every request: with items, with nothing, or by lingering. A cut supply hides further items of the
// query. On a cut shelf the first request that wants more than is left therefore waits for a run, and all later ones wait,
// too. A stale shelf says nothing about the query: whether it is cut or not, each request gets all that it wants, or waits. A
// request that only a rule keeps from the rest waits alone. In a run's own round a request may get less than it wants, because
// nobody can get better items. Only a request that finds the result used up waits for the next run. A run's own round may leave
// requests to the shelf that its result becomes. The shelf answers them as that round would: another run would find the same
// items. If the shelf ends first, the next run's own round answers them (Request.Ran).
func Assign(rules Rules, requests []Request, supply Supply) Plan {
	s := newStock(supply.Items)
	open := map[string]int{}
	for _, r := range requests {
		open[r.Holder.User] = r.Open
	}
	plan := Plan{Answers: make([]Answer, 0, len(requests))}
	for _, r := range requests {
		room := r.Wanted
		if rules.MaxOpen > 0 {
			room = min(room, rules.MaxOpen-open[r.Holder.User])
		}
		answer := Answer{Request: r.ID}
		switch {
		case !rules.allow(r):
			answer.Outcome, answer.Reason = None, Barred
		case room <= 0:
			answer.Outcome, answer.Reason = None, AtLimit
		case plan.Spent:
			answer.Outcome = Wait
		default:
			found, left := s.pick(r.Holder, room)
			if len(found) < room && supply.More {
				return Plan{Short: true}
			}
			answer.Outcome, answer.Reason = outcome(r, supply, room, len(found), left, s.usedUp())
			if answer.Outcome == Assigned || answer.Outcome == Partial {
				answer.Grants = s.take(r.Holder, found)
				open[r.Holder.User] += len(found)
			}
			plan.Spent = answer.Outcome == Wait && supply.Source == Shelf && left < room
		}
		plan.Answers = append(plan.Answers, answer)
	}
	return plan
}

// outcome decides what becomes of a request that may have room items and found so many. If those are too few, left is the
// number of items that a user whom no rule bars could have.
func outcome(r Request, supply Supply, room, found, left int, usedUp bool) (Outcome, Reason) {
	switch {
	case found == r.Wanted:
		return Assigned, NoReason
	case supply.Stale:
		return Wait, NoReason
	case found == room:
		return Partial, AtLimit
	case supply.Cut && supply.Source == Shelf && !r.Ran:
		return Wait, NoReason
	case left > found && found > 0:
		return Partial, Barred
	case found > 0:
		return Partial, NoReason
	case supply.Cut && supply.Source != Inbox && (usedUp || supply.Used) && left == 0:
		return Wait, NoReason
	}
	reason := Barred
	if left == 0 {
		reason = AllHeld
	}
	if !supply.Usable {
		reason = NoMatch
	}
	if r.Lingers {
		return Linger, reason
	}
	return None, reason
}

// stock is the supply while it is handed out. Nothing comes back to it in a round. So the first request that meets an item
// which nobody can have any more unlinks it, and later requests skip it.
type stock struct {
	items []entry
	first int              // the best item that somebody could have; the others are linked from it
	busy  map[string]bool  // groups of which a member is held
	given map[Holder][]int // what each holder got in this round
}

type entry struct {
	*Item
	left int // places
	slot int // the highest place given in this round: all below it are held
	next int // the next best entry that somebody could have
}

func newStock(items []Item) *stock {
	s := &stock{items: make([]entry, len(items)), busy: map[string]bool{}, given: map[Holder][]int{}}
	for i := range items {
		it := &items[i]
		s.items[i] = entry{Item: it, left: it.Slots - len(it.Taken), next: i + 1}
		if it.Exclusive != "" && (it.Busy || len(it.Taken) > 0) {
			s.busy[it.Exclusive] = true
		}
	}
	return s
}

// usedUp reports whether items were handed out: in this round, or while the query ran, in which case none are left. If a
// result's items are all full or their groups busy and none was handed out, another run would find the same. A request that
// waited for it would make the query run for ever.
func (s *stock) usedUp() bool { return len(s.given) > 0 || len(s.items) == 0 }

// pick finds the best items, at most n, that the holder may have. On the way it counts the items that a user whom no rule bars
// could have; left is less than n only if there are no more. Two members of a group are never found together, and count once.
func (s *stock) pick(h Holder, n int) (found []int, left int) {
	counted, chosen := map[string]bool{}, map[string]bool{} // by group; "" is always false
	for link := &s.first; *link < len(s.items) && len(found) < n; {
		i := *link
		it := &s.items[i]
		if it.left <= 0 || s.busy[it.Exclusive] {
			*link = it.next
			continue
		}
		link = &it.next
		if chosen[it.Exclusive] {
			continue
		}
		if !counted[it.Exclusive] {
			counted[it.Exclusive] = it.Exclusive != ""
			left++
		}
		if slices.Contains(it.Barred, h.User) || slices.Contains(it.Holders, h) || slices.Contains(s.given[h], i) {
			continue
		}
		chosen[it.Exclusive] = it.Exclusive != ""
		found = append(found, i)
	}
	return found, left
}

// take gives a place of each of the items to the holder.
func (s *stock) take(h Holder, items []int) []Grant {
	grants := make([]Grant, 0, len(items))
	for _, i := range items {
		it := &s.items[i]
		for it.slot++; slices.Contains(it.Taken, it.slot); {
			it.slot++
		}
		it.left--
		if it.Exclusive != "" {
			s.busy[it.Exclusive] = true
		}
		grants = append(grants, Grant{Item: i, Slot: it.slot})
	}
	s.given[h] = append(s.given[h], items...)
	return grants
}
