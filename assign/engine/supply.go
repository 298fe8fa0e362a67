package engine

import (
	"context"
	"time"

	"getwork/assign/plan"
	"getwork/assign/ranking"
)

// offer is an item of a supply as the plan sees it, and what is written when it is handed out.
type offer struct {
	cand ranking.Candidate
	plan.Item
	attempt   int        // the number of the attempt if it is handed out
	until     *time.Time // for an item of an inbox with several places: when the first user who has put it off may have it again
	elsewhere []string   // barred users who hold or completed it under a conflicting task
}

// supply is where a round's items come from.
type supply interface {
	source() plan.Source
	// take reads the best items that anybody could have now, at least n of them if there are that many. all: there are no
	// others.
	take(ctx context.Context, r *round, n int) (offers []offer, all bool, err error)
	cut() bool
	usable() bool                                           // whether there were any usable items, handed out or not
	runID() *int64                                          // the run that ranked the items; nil: none
	settle(after settlement) (statement string, args []any) // the statement may return when the shelf should be renewed
}

// settlement is what a supply must remember of a round.
type settlement struct {
	next   int64    // candidates of a lower rank are gone
	gone   int      // how many items are used up
	used   bool     // a request was answered, or lingers from now on
	spent  bool     // the shelf ends
	handed []string // the items that were handed out
}
