// Package plan decides who gets what ([Assign]), and what a node does next for a task ([Next]).
//
// Both are pure functions of values: no context, clock, log, randomness or I/O. Assign's arguments were read under the
// assign lock, and its result is written under the same lock. So every mistake in a decision can be found, and tested,
// here alone. testdata/spec has the rules as plain cases.
//
// # Rules
//
// Every rule of a task fills a field, and so does a new one. A rule for a user, whatever the item, lowers [Request.Room] and is
// its [Request.Why]: see [Request.Limit]. A rule for an item is a field of [Item], and [Bars] tells whom it keeps from the
// item. Rounds, claims, reassignments and explanations all go by these.
//
// # Races
//
//   - A request that found too little on a cut shelf is overtaken by a later one that asks for less. The shelf ends with the
//     request that it could not satisfy. TestSpecification (sources.txt)
package plan

import (
	"math"
	"slices"
)

// Holder is a user, or one of several programs under the user's name.
type Holder struct{ User, Instance string }

// Request is one holder's waiting request.
type Request struct {
	ID       int64 // requests are served in the order of their ids
	Holder   Holder
	Wanted   int      // at least 1
	Lingers  bool     // it waits rather than end with nothing
	Room     int      // how many the user may still get, in all: what a round gives to their other requests counts
	Why      Reason   // why not more
	Groups   []string // the user's groups
	Skills   []string // what the user can do besides, which counts for Item.Needs alone
	Anything bool     // needs no group and no skill: the user is a manager

	// Elsewhere says that the run of another task is for it. It takes what is here, and otherwise nothing changes: it neither ends nor
	// lingers, and no shelf is spent for it.
	Elsewhere bool
}

// NoLimit is the room of a user whom no rule limits. No room is the zero value: whoever forgets it gives too little, not too much.
const NoLimit = math.MaxInt

// Limit lowers the room to n, or to none if n is negative; why is the reason. Of two rules that leave the same room, the reason
// is the first.
func (r *Request) Limit(n int, why Reason) {
	if n = max(n, 0); n < r.Room {
		r.Room, r.Why = n, why
	}
}

// Only leaves no room if the task is for members of groups, and the user is in none of them. No groups: it is for everybody.
func (r *Request) Only(groups []string) {
	if !r.Anything && len(groups) > 0 && !slices.ContainsFunc(r.Groups, func(g string) bool { return slices.Contains(groups, g) }) {
		r.Limit(0, Barred)
	}
}

// Item is an item that can be handed out, perhaps not to everybody.
type Item struct {
	Slots     int      // how many holders it may have; 0: nobody may have it now, because the task's recheck has not returned it
	Taken     []int    // the numbers of the held places; after Slots was lowered there may be more than Slots, and higher ones
	Holders   []Holder // the holders of those places; no holder has an item twice
	Barred    []Bar    // users who may not have it
	Once      bool     // a user has it once, not each instance of theirs
	Exclusive string   // its group, of which one member is held at a time, by one holder; empty for none
	Busy      bool     // another member of the group is held
	Needs     []string // groups or skills, all of which its holder must have
}

// Lacks returns what the user of a request lacks of needs.
func (r *Request) Lacks(needs []string) (lacks []string) {
	if r.Anything {
		return nil
	}
	for _, need := range needs {
		if !slices.Contains(r.Groups, need) && !slices.Contains(r.Skills, need) {
			lacks = append(lacks, need)
		}
	}
	return lacks
}

// Bar keeps a user from an item.
type Bar struct {
	User    string
	Because Because
}

// Because names what keeps a request's user from an item.
type Because int

// The values of Because. FourEyes and LetGo are those of a Bar.
const (
	Free      Because = iota // nothing does
	NoRoom                   // the user may get no more: see Request.Why
	Full                     // all its places are taken
	GroupHeld                // a member of its group is held
	HoldsIt                  // the holder has it already
	FourEyes                 // the user holds or completed it under a task that this one conflicts with
	LetGo                    // the user returned it to others, or put it off
	Completed                // the user has completed it, and others are to
	Needs                    // the user lacks some of what it needs: see Request.Lacks
)

// Bars says what keeps the request's user from the item, as both were before the round.
func Bars(r *Request, it *Item) Because {
	switch {
	case r.Room <= 0:
		return NoRoom
	case it.free() <= 0:
		return Full
	case it.groupHeld():
		return GroupHeld
	}
	return bars(r, it)
}

// bars is Bars for a user who has room, and an item that somebody could have. A round keeps count of both itself.
func bars(r *Request, it *Item) Because {
	for _, h := range it.Holders {
		if it.as(h) == it.as(r.Holder) {
			return HoldsIt
		}
	}
	for i := range it.Barred {
		if it.Barred[i].User == r.Holder.User {
			return it.Barred[i].Because
		}
	}
	if len(it.Needs) > 0 && len(r.Lacks(it.Needs)) > 0 {
		return Needs
	}
	return Free
}

// as is who counts as having the item if the holder has it.
func (it *Item) as(h Holder) Holder {
	if it.Once {
		h.Instance = ""
	}
	return h
}

// free returns the number of free places. It is negative if places were lowered.
func (it *Item) free() int { return it.Slots - len(it.Taken) }

func (it *Item) groupHeld() bool { return it.Exclusive != "" && (it.Busy || len(it.Taken) > 0) }

// Place returns the number of the lowest free place above n. Places are numbered from 1.
func (it *Item) Place(n int) int {
	for n++; slices.Contains(it.Taken, n); {
		n++
	}
	return n
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
	// Wait means that the request stays pending, and the next run is for it: that of another task, if it is Elsewhere.
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

// The reasons of None and Linger. Partial has Barred, the request's Why, or NoReason.
const (
	NoReason Reason = iota
	NoMatch         // there are no items
	AllHeld         // there are items, but all are held, put off, or excluded by held ones
	Barred          // some could be handed out, but none, or no more, to this user
	AtLimit         // the user holds as much as the limit allows
	Away            // the user is away
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
	Left    bool // somebody whom no rule bars could still have an item; if not, whoever comes after these requests gets nothing
	Short   bool // the plan is void, and has no answers: read more items and plan again
}

// Assign serves the requests in the order given, which must be that of their ids, each with the best items that it
// may have.
//
// A whole supply answers every request: with items, with nothing, or by lingering. A cut supply hides further items of the
// query. On a cut shelf the first request that wants more than is left therefore waits for a run, and all later ones wait,
// too. A stale shelf says nothing about the query: whether it is cut or not, each request gets all that it wants, or waits. A
// request that only a rule keeps from the rest waits alone, and one whose run is elsewhere keeps nobody back. In a run's own round a request may get less than it wants, because
// nobody can get better items. Only a request that finds the result used up waits for the next run.
func Assign(requests []Request, supply Supply) Plan {
	s := newStock(supply.Items)
	got := map[string]int{} // how many each user got in this round
	plan := Plan{Answers: make([]Answer, 0, len(requests))}
	for i := range requests {
		r := &requests[i]
		room := min(r.Wanted, r.Room-got[r.Holder.User])
		answer := Answer{Request: r.ID}
		switch {
		case r.Elsewhere && room <= 0:
			answer.Outcome = Wait
		case room <= 0:
			answer.Outcome, answer.Reason = None, r.Why
		case plan.Spent:
			answer.Outcome = Wait
		default:
			found, left := s.pick(r, room)
			if len(found) < room && supply.More {
				return Plan{Short: true}
			}
			answer.Outcome, answer.Reason = outcome(r, supply, room, len(found), left, s.usedUp())
			if answer.Outcome == Assigned || answer.Outcome == Partial {
				answer.Grants = s.take(r.Holder, found)
				got[r.Holder.User] += len(found)
			}
			plan.Spent = answer.Outcome == Wait && supply.Source == Shelf && left < room && !r.Elsewhere
		}
		plan.Answers = append(plan.Answers, answer)
	}
	plan.Left = s.left()
	return plan
}

// outcome decides what becomes of a request that may have room items and found so many. If those are too few, left is the
// number of items that a user whom no rule bars could have.
func outcome(r *Request, supply Supply, room, found, left int, usedUp bool) (Outcome, Reason) {
	switch {
	case found == r.Wanted:
		return Assigned, NoReason
	case supply.Stale:
		return Wait, NoReason
	case r.Elsewhere && found == 0:
		return Wait, NoReason
	case found == room:
		return Partial, r.Why
	case supply.Cut && supply.Source == Shelf && !r.Elsewhere:
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
		s.items[i] = entry{Item: it, left: it.free(), next: i + 1}
		if it.groupHeld() {
			s.busy[it.Exclusive] = true
		}
	}
	return s
}

// usedUp reports whether items were handed out: in this round, or while the query ran, in which case none are left. If a
// result's items are all full or their groups busy and none was handed out, another run would find the same. A request that
// waited for it would make the query run for ever.
func (s *stock) usedUp() bool { return len(s.given) > 0 || len(s.items) == 0 }

// left reports whether somebody whom no rule bars could have an item.
func (s *stock) left() bool {
	for ; s.first < len(s.items); s.first = s.items[s.first].next {
		if it := &s.items[s.first]; it.left > 0 && !s.busy[it.Exclusive] {
			return true
		}
	}
	return false
}

// pick finds the best items, at most n, that the request's holder may have. On the way it counts the items that a user whom no
// rule bars could have; left is less than n only if there are no more. Two members of a group are never found together, and
// count once.
func (s *stock) pick(r *Request, n int) (found []int, left int) {
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
		if bars(r, it.Item) != Free || slices.Contains(s.given[it.as(r.Holder)], i) {
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
		it.slot = it.Place(it.slot)
		it.left--
		if it.Exclusive != "" {
			s.busy[it.Exclusive] = true
		}
		grants = append(grants, Grant{Item: i, Slot: it.slot})
		s.given[it.as(h)] = append(s.given[it.as(h)], i)
	}
	return grants
}
