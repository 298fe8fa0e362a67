package engine

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ahead is what a round that serves clicks is going to read, asked for on one way to the database with the lock. Each
// statement sees what was committed when it begins, so those behind the lock's see what it protects.
type ahead struct {
	asked   int // for so many offers
	waiting []waiter
	ids     []int64
	offers  []offer // of the shelf, if there is one; only for tasks that conflict with none
}

// The scalar sub-queries leave it to the index to give the order; joined to the state, all of the shelf would be sorted.
const selectShelfAhead = `
select c.rank, c.item, c.details::text, ` + standingColumns + `
from getwork.candidate c join getwork.run u on u.id = c.run_id` + standingAlone + `
where c.run_id = (select s.shelf_run from getwork.task_state s where s.task_id = $1)
  and c.rank >= (select s.shelf_from from getwork.task_state s where s.task_id = $1) and not st.gone
order by c.rank
limit $2`

func (a *ahead) queue(r *round, batch *pgx.Batch, clicks []*click) {
	a.asked = wanted(clicks)
	batch.Queue(r.e.SQL(selectWaiting), r.task)
	batch.Queue(r.e.SQL(selectIDs), len(clicks))
	batch.Queue(r.e.SQL(selectShelfAhead), r.task, a.asked)
}

func (a *ahead) read(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err == nil {
		a.waiting, err = pgx.CollectRows(rows, scanWaiter)
	}
	if err == nil {
		rows, err = results.Query()
	}
	if err == nil {
		a.ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err == nil {
		rows, err = results.Query()
	}
	if err == nil {
		a.offers, err = pgx.CollectRows(rows, scanOffer)
	}
	if err != nil {
		return fmt.Errorf("read who waits, and the shelf: %w", err)
	}
	return nil
}

// shelf gives the best n offers of the shelf, if they are known.
func (a *ahead) shelf(r *round, n int) (offers []offer, known bool) {
	if a == nil || a.offers == nil || n > a.asked || len(r.state.conflicts) > 0 {
		return nil, false
	}
	offers, a.offers = a.offers, nil // once: when it is planned again, something has changed
	return offers[:min(n, len(offers))], true
}
