package assign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A task with a recheck hands out only what matched a moment ago. The recheck is somebody's query and may take its time,
// so it is executed before the assign lock is taken, on the best candidates: twice as many as are asked for, and some. If
// the round then comes to one that was not among them, it is given up, and begun again with more.

// matching says of the candidates that were rechecked whether they match; nil: the task has no recheck.
type matching map[string]bool

// errUnchecked: more candidates must be rechecked than were.
var errUnchecked = errors.New("too few candidates were rechecked")

// recheckAtOnce is how many candidates one execution of a recheck is asked about.
const recheckAtOnce = 500

const (
	selectAskedFor = `select coalesce(sum(wanted), 0) from getwork.work_requested where task_id = $1 and state = 'pending'`

	selectCandidates = `
select c.rank, c.item
from getwork.task_state s join getwork.candidate c on c.run_id = s.shelf_run
where s.task_id = $1 and s.fresh_until > clock_timestamp() and c.rank >= greatest(s.shelf_from, $2)
order by c.rank
limit $3`
)

// askedFor is how many items those want who wait for the task.
func (e *Engine) askedFor(ctx context.Context, task int64) (n int, err error) {
	if err = e.api.QueryRow(ctx, e.SQL(selectAskedFor), task).Scan(&n); err != nil {
		err = fmt.Errorf("count what is asked for: %w", err)
	}
	return n, err
}

// rechecked calls round with what the task's recheck says of the best candidates on its shelf, and again with more of
// them while that is too few. more is how much is asked for besides what waits. There must be no lock that round's
// transaction takes, and no connection of the API pool in use. A recheck that can't be had leaves its error: [Busy] if no
// place is free for it.
func (e *Engine) rechecked(ctx context.Context, task int64, s Settings, more int, round func(matching) error) error {
	if s.Inbox() || s.Recheck == "" {
		return round(nil)
	}
	n, err := e.askedFor(ctx, task)
	if err != nil {
		return err
	}
	for enough := 2*(n+more) + 20; ; enough *= 4 {
		found, all, err := e.recheckShelf(ctx, task, s, enough)
		if err != nil {
			return err
		}
		if err = round(found); !errors.Is(err, errUnchecked) || all && enough > maxRechecked {
			return err
		}
	}
}

// maxRechecked ends what can't succeed: a shelf that is another at each try.
const maxRechecked = 10_000_000

// recheckShelf rechecks candidates from the best on, until so many match, or there are no more.
func (e *Engine) recheckShelf(ctx context.Context, task int64, s Settings, enough int) (found matching, all bool, err error) {
	found = matching{}
	for from, n := int64(0), 0; n < enough; {
		var items []string
		rows, err := e.api.Query(ctx, e.SQL(selectCandidates), task, from, recheckAtOnce)
		if err == nil {
			_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (item string, err error) {
				err = row.Scan(&from, &item)
				items = append(items, item)
				return item, err
			})
		}
		if err != nil {
			return nil, false, fmt.Errorf("read what is to be rechecked: %w", err)
		}
		if len(items) == 0 {
			return found, true, nil
		}
		match, err := e.recheckNow(ctx, s, items)
		if err != nil {
			return nil, false, err
		}
		for _, item := range items {
			found[item] = match[item]
		}
		n += len(match)
		if len(items) < recheckAtOnce {
			return found, true, nil
		}
		from++
	}
	return found, false, nil
}

// recheckResult does the same with a run's result, in the transaction in which its query was executed. What was not
// rechecked is not handed out in the run's own round.
func (e *Engine) recheckResult(ctx context.Context, tx pgx.Tx, task int64, s Settings, found *result) error {
	if s.Recheck == "" {
		return nil
	}
	n, err := e.askedFor(ctx, task)
	if err != nil {
		return err
	}
	found.matching = matching{}
	for from, match := 0, 0; from < len(found.items) && match < 2*n+20; from += recheckAtOnce {
		var items []string
		for _, it := range found.items[from:min(from+recheckAtOnce, len(found.items))] {
			items = append(items, it.item)
		}
		began := time.Now()
		matching, err := recheckIn(ctx, tx, s.Recheck, items)
		var fault *errQuery
		if err = faultOf(err, time.Since(began), s.QueryTimeout); errors.As(err, &fault) {
			return &errQuery{"the task's recheck: " + fault.message}
		}
		if err != nil {
			return err
		}
		for _, item := range items {
			found.matching[item] = matching[item]
		}
		match += len(matching)
	}
	return nil
}
