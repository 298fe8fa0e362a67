// Package plan decides who gets what.
//
// It is a pure function of values: no context, clock, log, chance or I/O. What it is given was read under the
// assign lock, and what it answers is written under the same lock; so whatever is wrong with a decision can be
// seen, and tested, here alone.
package plan

// Request is one holder's wish, as it waits.
type Request struct {
	ID      int64 // requests are served in the order of their ids
	Wanted  int   // at least 1
	Lingers bool  // it would rather wait than end with nothing
}

// Source says where the items come from, which decides what an empty shelf means.
type Source int

const (
	// Shelf is what an earlier run left. Nobody may overtake the one who finds too little on it.
	Shelf Source = iota
	// Run is the result of a run in its own round: the best that there is, so everybody is answered from it.
	Run
)

// Supply is what can be handed out.
type Supply struct {
	Source Source
	Items  int  // how many items can be handed out, best first; the caller knows them by their index
	Cut    bool // the run found more than it could keep: having none left says nothing about the query
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
	// Partial is getting less than it wanted, which is all that there is.
	Partial
	// None is ending with nothing.
	None
)

// Answer is what one request gets: the items From … From+Count-1 of the supply.
type Answer struct {
	Request int64
	Outcome Outcome
	From    int
	Count   int
}

// Plan is one answer for each request, in the order of their ids.
type Plan struct {
	Answers []Answer
	Used    int  // the first Used items of the supply are handed out
	Spent   bool // the shelf must not be handed out any more: someone waits for a run, and nobody may overtake him
}

// Assign serves the requests in the order given, which must be that of their ids, each with the best items left.
//
// A whole supply answers everybody: with what there is, or with nothing, or by lingering. A cut one hides what
// else the query would have given. On the shelf, the first who wants more than is left therefore waits for a
// run, and all after him wait too. In a run's own round a part is a fair answer (nobody can do better), and only
// who finds nothing at all waits for the next run.
func Assign(requests []Request, supply Supply) Plan {
	plan := Plan{Answers: make([]Answer, 0, len(requests))}
	for _, r := range requests {
		left := supply.Items - plan.Used
		answer := Answer{Request: r.ID, From: plan.Used}
		switch {
		case plan.Spent:
			answer.Outcome = Wait
		case left >= r.Wanted:
			answer.Outcome, answer.Count = Assigned, r.Wanted
		case supply.Cut && supply.Source == Shelf:
			answer.Outcome, plan.Spent = Wait, true
		case left > 0:
			answer.Outcome, answer.Count = Partial, left
		case supply.Cut:
			answer.Outcome = Wait
		case r.Lingers:
			answer.Outcome = Linger
		default:
			answer.Outcome = None
		}
		plan.Used += answer.Count
		plan.Answers = append(plan.Answers, answer)
	}
	return plan
}
