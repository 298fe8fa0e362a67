package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/ranking"
)

// A task with a recheck hands out only what matched a moment ago. The recheck is somebody's query and may take its time,
// so it is executed before the assign lock is taken, on the best candidates: twice as many as are asked for, and some. If
// the round then comes to one that was not among them, it is given up, and begun again with more.

var (
	// errTooFewRechecked: more candidates must be rechecked than were, or by another recheck.
	errTooFewRechecked = errors.New("too few candidates were rechecked")

	// errNoRecheck: the recheck can't be had, for the reason that is wrapped with it.
	errNoRecheck = errors.New("recheck what is on the shelf")
)

const (
	// What is gone is left out: it would be asked about for ever behind one that does not match and keeps the shelf from
	// moving on.
	selectCandidates = `
select c.rank, c.item, c.run_id
from getwork.candidate c join getwork.run u on u.id = c.run_id` + availabilityUnconflicted + `
where c.run_id = (select s.shelf_run from getwork.task_state s where s.task_id = $1 and s.fresh_until > clock_timestamp())
  and c.rank >= greatest($2, (select s.shelf_from from getwork.task_state s where s.task_id = $1)) and not st.gone
order by c.rank
limit $3`
)

// withRecheckedShelf calls round with what the task's recheck says of the best candidates on its shelf, and again with more of
// them while that is too few. more is how much is asked for besides what waits. Of the locks that round's transaction
// takes none may be held, nor a connection of the API pool. errNoRecheck: the recheck can't be had.
func (e *Engine) withRecheckedShelf(ctx context.Context, task int64, s assign.Settings, more int, round func(ranking.Matching) error) error {
	look := shelfRecheck{e: e, task: task, s: s}
	asked := 0
	for range attempts {
		if look.s.Recheck != "" {
			n, err := e.Ranker.AskedFor(ctx, task)
			if err == nil {
				asked = max(2*(n+more)+20, 4*asked)
				err = look.ask(ctx, asked)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", errNoRecheck, err)
			}
		}
		if err := round(look.found); !errors.Is(err, errTooFewRechecked) {
			return err
		}
		p, err := e.readTaskView(ctx, e.api, task)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoRecheck, err)
		}
		if look.all || p.Recheck != look.s.Recheck { // the shelf is another, or the recheck
			look = shelfRecheck{e: e, task: task, s: p.Settings}
		}
	}
	return errTooFewRechecked
}

// shelfRecheck rechecks a shelf from the best on.
type shelfRecheck struct {
	e     *Engine
	task  int64
	s     assign.Settings
	found ranking.Matching
	run   int64 // whose result is on the shelf
	next  int64 // the rank from which on nothing was asked
	all   bool  // there is no more
}

// ask goes on until so many more match, or there are no more.
func (l *shelfRecheck) ask(ctx context.Context, enough int) error {
	if l.found.Items == nil {
		l.found = ranking.Matching{By: l.s.Recheck, Items: map[string]bool{}}
	}
	for !l.all && enough > 0 {
		var items []string
		run := l.run
		rows, err := l.e.api.Query(ctx, l.e.SQL(selectCandidates), l.task, l.next, ranking.RecheckAtOnce)
		if err == nil {
			_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (item string, err error) {
				err = row.Scan(&l.next, &item, &run)
				items = append(items, item)
				return item, err
			})
		}
		if err != nil {
			return fmt.Errorf("read what is to be rechecked: %w", err)
		}
		if l.run != 0 && run != l.run { // swapped meanwhile: from its best on
			*l = shelfRecheck{e: l.e, task: l.task, s: l.s, run: run}
			l.found = ranking.Matching{By: l.s.Recheck, Items: map[string]bool{}}
			continue
		}
		l.run = run
		l.next++
		l.all = len(items) < ranking.RecheckAtOnce
		if len(items) == 0 {
			return nil
		}
		match, err := l.e.Ranker.RecheckNow(ctx, l.s, items)
		if err != nil {
			return err
		}
		for _, item := range items {
			l.found.Items[item] = match[item]
		}
		enough -= len(match)
	}
	return nil
}
