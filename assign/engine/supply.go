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
	attempt   int        // which one it will be
	until     *time.Time // of an inbox: when the first who has put it off may have it again, if it has several places
	elsewhere []string   // of those who are barred: they hold or completed it under a task that conflicts
}

// supply is where a round's items come from.
type supply interface {
	source() plan.Source
	// take reads the best items that anybody could have now, at least n of them if there are so many, and whether
	// those were all.
	take(ctx context.Context, r *round, n int) (offers []offer, all bool, err error)
	cut() bool
	usable() bool                                           // whether there were usable items at all, handed out or not
	runID() *int64                                          // the run that ranked them; nil: none did
	settle(after settlement) (statement string, args []any) // it may return when the shelf ought to be renewed
}

// settlement is what a supply has to remember of a round.
type settlement struct {
	next   int64    // candidates of a lower rank are gone
	gone   int      // how many items nobody else can have now
	used   bool     // somebody was answered, or lingers from now on
	spent  bool     // the shelf ends
	handed []string // the items that were handed out
}
