package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/ranking"
	"getwork/assign/records"
)

// A task with a recheck hands out only items that matched a moment ago. The recheck is a user's query and may take its time,
// so it is executed before the assign lock is taken, on the best candidates, until somewhat more than twice as many match as are
// wanted. A round that comes to a candidate that was not rechecked is given up, and begins again with more.

var (
	// errTooFewRechecked says that the round needs more candidates rechecked, or by another recheck.
	errTooFewRechecked = errors.New("too few candidates were rechecked")

	// errNoRecheck says that the recheck could not be executed; the reason is wrapped with it.
	errNoRecheck = errors.New("recheck what is on the shelf")
)

const (
	// Items that are gone are left out. Otherwise they would be rechecked for ever behind a candidate that does not match and
	// keeps the shelf from moving on.
	selectCandidates = `
select c.rank, c.item, c.run_id
from getwork.candidate c join getwork.run u on u.id = c.run_id` + availabilityUnconflicted + `
where c.run_id = (
    select s.shelf_run from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
    where s.task_id = $1 and ` + records.ShelfLasts + `)
  and c.rank >= greatest($2, (select s.shelf_from from getwork.task_state s where s.task_id = $1)) and not st.gone
order by c.rank`
)

// withRecheckedShelf calls round with what the task's recheck says of the best candidates on its shelf, and again with more
// of them while they are too few. more is the number of wanted items besides those of the waiting requests. The caller must
// hold neither a lock that round's transaction takes nor a connection of the API pool. errNoRecheck: the recheck could not be
// executed.
//
// It goes on however many candidates a rule keeps from somebody who waits: given up, the round would come to the same request again
// and again, and serve nobody. Each turn asks for four times as many as the last, so a shelf of a million takes nine. The assign lock
// is not held meanwhile. A shelf or a recheck that is replaced again and again is given up.
func (e *Engine) withRecheckedShelf(ctx context.Context, task int64, s assign.Settings, more int, round func(ranking.Matching) error) error {
	look := shelfRecheck{e: e, task: task, s: s}
	asked := 0
	for look.begun < attempts {
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
		if look.all || p.Recheck != look.s.Recheck { // there is a new shelf or a new recheck
			look.begin(p.Settings)
		}
	}
	return errTooFewRechecked
}

// shelfRecheck rechecks a shelf, best candidates first.
type shelfRecheck struct {
	e     *Engine
	task  int64
	s     assign.Settings
	found ranking.Matching
	run   int64 // the run whose result is on the shelf
	next  int64 // the first rank that was not rechecked
	all   bool  // the whole shelf was rechecked
	begun int   // how often it began with the best, besides the first time
}

// begin begins again with the best candidates, by the task's settings as they are now.
func (l *shelfRecheck) begin(s assign.Settings) {
	*l = shelfRecheck{e: l.e, task: l.task, s: s, begun: l.begun + 1}
}

// ask rechecks until enough candidates match, or none are left.
func (l *shelfRecheck) ask(ctx context.Context, enough int) error {
	if l.found.Items == nil {
		l.found = ranking.Matching{By: l.s.Recheck, Items: map[string]bool{}}
	}
	for !l.all && enough > 0 {
		var items []string
		run := l.run
		limit := "\nlimit " + strconv.Itoa(ranking.RecheckAtOnce) // in the text: see atMost
		rows, err := l.e.api.Query(ctx, l.e.SQL(selectCandidates+limit), l.task, l.next)
		if err == nil {
			_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (item string, err error) {
				err = row.Scan(&l.next, &item, &run)
				items = append(items, item)
				return item, err
			})
		}
		if err != nil {
			return fmt.Errorf("read the candidates to recheck: %w", err)
		}
		if l.run != 0 && run != l.run { // the shelf was swapped meanwhile: begin with its best
			if l.begin(l.s); l.begun >= attempts {
				return errTooFewRechecked
			}
			l.run, l.found = run, ranking.Matching{By: l.s.Recheck, Items: map[string]bool{}}
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
