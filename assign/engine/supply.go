package engine

import (
	"context"
	"math/bits"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
)

// offer is an item of a supply as the plan sees it, and what is written when it is handed out.
type offer struct {
	cand ranking.Candidate
	plan.Item
	attempt   int        // the number of the attempt if it is handed out
	until     *time.Time // for an item of an inbox with several places: when the first user who has put it off may have it again
	elsewhere []string   // barred users who hold or completed it under a conflicting task
}

// supply is where a round's items come from. source, cut, usable, used and stale are what [plan.Supply] has under these names.
type supply interface {
	source() plan.Source
	// take reads the best items that anybody could have now, at least n of them if there are that many. all: there are no
	// others.
	take(ctx context.Context, r *round, n int) (offers []offer, all bool, err error)
	cut() bool
	usable() bool         // whether there were any usable items, handed out or not
	used() bool           // items of the shelf were handed out since its run
	stale() bool          // the items are from a shelf that has expired
	runID() *int64        // the run that ranked the items; nil: none
	rankedAt() *time.Time // what that run saw was committed before; nil: none did

	// settle returns what the round's transaction writes to remember what it handed out. args begin with $2; $1 is the task. The
	// statement may return shelfLife: when the shelf should be renewed.
	settle(after settlement) (statement string, args []any)
}

// settlement is what a supply must remember of a round.
type settlement struct {
	next   int64    // candidates of a lower rank are gone
	gone   int      // how many items are used up
	used   bool     // a request was answered, or lingers from now on
	spent  bool     // the shelf ends
	handed []string // the items that were handed out
}

// shelfServes is true if the result of the run u on the shelf of task s may still be handed out: its time is not over, or it
// may go on serving while its refresh runs. shelfFresh is true for the former alone.
//
// The cluster must still be in the life in which the run was made. A cluster that was restored from a dump, or became the
// primary by logical replication, has other transaction ids. Every closing may then look older than the run's snapshot, and
// finished items would be handed out. A snapshot from the future is of another life, too. The time comes first, because it
// costs least.
const (
	shelfFresh  = `coalesce(s.fresh_until > clock_timestamp() and ` + sameLife
	shelfServes = `coalesce(` + records.ShelfLasts + ` and ` + sameLife

	// shelfExpired is true if a shelf that serves does so by stale_for. It repeats what stale_for asks, because the clock goes on
	// within a statement: a shelf that was fresh a microsecond ago may have expired by now.
	shelfExpired = `coalesce(s.fresh_until <= clock_timestamp() and s.fresh_until = s.expires_at and v.stale_for > interval '0', false)`

	sameLife = `u.cluster = getwork.cluster()
    and coalesce(pg_snapshot_xmax(u.snapshot) <= pg_snapshot_xmax(pg_current_snapshot()), true), false)`
)

// shelf hands out what the last run left.
type shelf struct{ *round }

func (s shelf) source() plan.Source  { return plan.Shelf }
func (s shelf) cut() bool            { return s.state.shelfCut }
func (s shelf) usable() bool         { return s.state.shelfUsable > 0 && (!s.dropped || s.state.shelfTaken) }
func (s shelf) used() bool           { return s.state.shelfUsed }
func (s shelf) stale() bool          { return s.state.stale }
func (s shelf) runID() *int64        { return &s.state.shelfRun }
func (s shelf) rankedAt() *time.Time { return s.state.rankedAt }

const selectShelf = `
select c.rank, c.item, c.details::text, ` + availabilityColumns + `
from getwork.candidate c join getwork.run u on u.id = c.run_id` + availability + `
where c.run_id = $3 and c.rank >= $4 and not st.gone
order by c.rank`

// atMost ends a statement that is to return at least n rows, if there are that many, and at most a quarter more; most is how many.
//
// The number stands in the text. Were it a parameter, PostgreSQL would make a new plan for each execution, which takes longer than
// the execution: a plan for any number looks dear to it, because it expects a tenth of all rows. The few numbers, four for each
// power of two, keep the texts few, and so the plans that a connection keeps.
func atMost(n int) (limit string, most int) {
	step := 1 << max(bits.Len(uint(n))-3, 0)
	most = (n + step - 1) / step * step
	return "\nlimit " + strconv.Itoa(most), most
}

// take reads the shelf from where it was left: candidates of a lower rank were handed out, or can't be any more.
func (s shelf) take(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	offers, known := r.ahead.shelf(r, n)
	if !known {
		limit, _ := atMost(n)
		rows, err := r.tx.Query(ctx, r.e.SQL(selectShelf+limit), r.task, s.state.conflicts, s.state.shelfRun, s.state.shelfFrom)
		if err == nil {
			offers, err = pgx.CollectRows(rows, scanOffer)
		}
		if err != nil {
			return nil, false, err
		}
		offers = offers[:min(n, len(offers))]
	}
	return offers, len(offers) < n, r.dropUnmatched(offers)
}

// dropUnmatched takes the places off items that no longer match. They stay on the shelf, since they may match again.
func (r *round) dropUnmatched(offers []offer) error {
	if r.state.Recheck == "" {
		return nil
	}
	if r.matching.By != r.state.Recheck {
		return errTooFewRechecked
	}
	for i := range offers {
		matches, known := r.matching.Items[offers[i].cand.Item]
		if !known {
			return errTooFewRechecked
		}
		if !matches {
			offers[i].Slots = 0
			r.dropped = true
		}
	}
	return nil
}

// scanOffer reads a rank, an item, its details, and its availability.
func scanOffer(row pgx.CollectableRow) (o offer, err error) {
	err = scanAvailability(row, &o, &o.cand.Rank, &o.cand.Item, &o.cand.Details)
	return o, err
}

const settleShelf = `
update getwork.task_state s
set shelf_from = greatest(shelf_from, $2), fresh_until = case when $3 then clock_timestamp() else fresh_until end,
    shelf_left = greatest(shelf_left - $4, 0), used_at = case when $5 then clock_timestamp() else used_at end
from getwork.task_version v
where s.task_id = $1 and v.task_id = s.task_id and v.version = s.version
returning ` + shelfLife

// settle moves the shelf on. A spent shelf ends at once, and the next run replaces it.
func (s shelf) settle(after settlement) (string, []any) {
	return settleShelf, []any{after.next, after.spent, after.gone, after.used}
}
