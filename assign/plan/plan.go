// Package plan decides who gets what ([Assign]), and what a node does next for a task ([Next]).
//
// Both are pure functions of values: no context, clock, log, chance or I/O. What Assign is given was read under
// the assign lock, and what it answers is written under the same lock; so whatever is wrong with a decision can be
// seen, and tested, here alone. Every rule of a task is an input of it: how many places an item has, who may not
// have it, which items exclude each other, how much one may hold, and who may take the task at all.
package plan

import "slices"

// Holder is who can hold work: a user, or one of several programs under his name.
type Holder struct{ User, Instance string }

// Request is one holder's wish, as it waits.
type Request struct {
	ID       int64 // requests are served in the order of their ids
	Holder   Holder
	Wanted   int      // at least 1
	Lingers  bool     // it would rather wait than end with nothing
	Open     int      // how much of the task the user holds already; the same in all his requests
	Groups   []string // that the user is in
	Anything bool     // he needs no group: a manager
}

// Rules are what the task says about everybody.
type Rules struct {
	MaxOpen int      // the most that one user may hold; 0: no limit
	Groups  []string // who may take it: members of any of these; empty: everybody
}

// allow reports whether the request's user may take the task at all.
func (r Rules) allow(q Request) bool {
	return q.Anything || len(r.Groups) == 0 || slices.ContainsFunc(q.Groups, func(g string) bool { return slices.Contains(r.Groups, g) })
}

// Item is something that can be handed out, perhaps not to everybody.
type Item struct {
	Slots     int      // how many holders it may have, at least 1
	Taken     []int    // the numbers of the places that are held; more of them, and higher ones, if Slots was lowered
	Holders   []Holder // who holds them: nobody holds an item twice
	Barred    []string // users who may not have it: who has seen it elsewhere (four eyes), or wants it no more
	Exclusive string   // its group, of which one member is held at a time, by one holder; empty: none
	Busy      bool     // another member of the group is held
}

// Source says where the items come from, which decides what an empty shelf means.
type Source int

const (
	// Shelf is what an earlier run left. Nobody may overtake the one who finds too little on it.
	Shelf Source = iota
	// Result is that of a run in its own round: the best that there is, so everybody is answered from it.
	Result
	// Inbox is what was pushed: there is nothing else, and no run to wait for.
	Inbox
)

// Supply is what there is to hand out.
type Supply struct {
	Source Source
	Items  []Item // best first
	Cut    bool   // the run found more than it could keep: having none left says nothing about the query
	More   bool   // there are further items, which were not read: see Plan.Short
	Usable bool   // there were items, though perhaps none of them can be handed out now
}

// Outcome is what becomes of a request.
type Outcome int

const (
	// Wait is staying pending, and the next run is for it.
	Wait Outcome = iota
	// Linger is staying pending until there is something, or its time is over; there is nothing for it now.
	Linger
	// Assigned is getting all that it wanted.
	Assigned
	// Partial is getting less than it wanted, which is all that there is, or all that it may have.
	Partial
	// None is ending with nothing.
	None
)

// Reason says why there was nothing, or less.
type Reason int

// The reasons of None and Linger; of Partial, which may also have none, the last two.
const (
	NoReason Reason = iota
	NoMatch         // there are no items
	AllHeld         // there are, but all are held, put off, or excluded by what is held
	Barred          // some could be handed out, but none of them to this user, or no more of them
	AtLimit         // the user holds as much as he may
)

// Grant is one place of one item.
type Grant struct {
	Item int // its index in the supply
	Slot int // the number of the place, from 1; always the lowest that is free
}

// Answer is what one request gets.
type Answer struct {
	Request int64
	Outcome Outcome
	Reason  Reason
	Grants  []Grant
}

// Plan is one answer for each request, in the order of their ids.
type Plan struct {
	Answers []Answer
	Spent   bool // the shelf must not be handed out any more: someone waits for a run, and nobody may overtake him
	Short   bool // it says nothing: read more items and plan again
}

// Assign serves the requests in the order given, which must be that of their ids, each with the best items that it
// may have.
//
// A whole supply answers everybody: with what there is, or with nothing, or by lingering. A cut one hides what
// else the query would have given. On the shelf, the first who wants more than is left therefore waits for a
// run, and all after him wait too; one who is kept from what is left by a rule only waits alone. In a run's own
// round a part is a fair answer (nobody can do better), and only who finds it used up waits for the next run.
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

// outcome decides what becomes of a request that may have room items, and found so many; if those are too few, left is
// how many anybody could have.
func outcome(r Request, supply Supply, room, found, left int, usedUp bool) (Outcome, Reason) {
	switch {
	case found == r.Wanted:
		return Assigned, NoReason
	case found == room:
		return Partial, AtLimit
	case supply.Cut && supply.Source == Shelf:
		return Wait, NoReason
	case left > found && found > 0:
		return Partial, Barred
	case found > 0:
		return Partial, NoReason
	case supply.Cut && supply.Source == Result && usedUp && left == 0:
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

// stock is the supply while it is handed out. Nothing comes back to it in a round, so what nobody can have any more is
// unlinked by the first who meets it, and no other request looks at it again.
type stock struct {
	items []entry
	first int              // the best that somebody could have; the others are linked from it
	busy  map[string]bool  // groups of which a member is held
	given map[Holder][]int // what each holder got in this round
}

type entry struct {
	*Item
	left int // places
	slot int // the highest that was given in this round: all below it are held
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

// usedUp reports whether what there was went to somebody: in this round, or before it while the query ran, so that
// there is nothing to see of it. A result of which nothing went, its items full or their groups busy, would be the
// same again: whoever waited for it would have it run for ever.
func (s *stock) usedUp() bool { return len(s.given) > 0 || len(s.items) == 0 }

// pick finds the best items, at most n, that the holder may have, and counts how many there are on the way that anybody
// could have: fewer than n only if there are no more. Two members of a group are never found together, and count once.
func (s *stock) pick(h Holder, n int) (found []int, left int) {
	counted, chosen := map[string]bool{}, map[string]bool{} // groups; no group is never in them
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
