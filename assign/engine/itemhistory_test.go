package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/schema/schematest"
)

// closings are the history of an item that went from hand to hand for months: each way in which it can be closed and come
// back.
const closings = `
insert into getwork.work (task_id, item, slot, user_name, attempt, assigned_at, state, closed_at, closed_by, closed_xid, after, available_at)
select $1, $2, 1, 'user ' || i % 5, 1, closed.at - interval '30 seconds', closed.as, closed.at, 'ann', '3'::xid8,
  case closed.as when 'returned' then interval '0' end, case when closed.as in ('returned', 'failed') then closed.at end
from generate_series($3::integer, 1, -1) i
cross join lateral (select clock_timestamp() - i * interval '30 seconds' as at,
  (array['completed', 'returned', 'failed', 'expired', 'reassigned'])[1 + i % 5] as as) closed`

// old is an item that every task of the test has.
const old = "old"

// looked is a statement that reads an item.
type looked struct {
	sql  string
	args []any
}

// lookedAt returns the statements of rounds, claims, pushes and runs.
func lookedAt(n *node, jobs, eyes, inbox int64, run int64) map[string]looked {
	of := func(sql string, args ...any) looked { return looked{n.SQL(sql), args} }
	none, conflicts := []int64{}, []int64{eyes}
	limit, _ := atMost(1)
	available := func(conflicts []int64) looked {
		return of(selectAvailable, jobs, conflicts, []int64{1}, []string{old}, []int32{1}, []*string{nil}, nil, nil, 1)
	}
	return map[string]looked{
		"a click on the shelf":                   of(best(selectShelfPrefetch, 1), jobs, 1),
		"a round of the shelf":                   of(selectShelf+limit, jobs, none, run, 1),
		"a round of the shelf, four eyes":        of(selectShelf+limit, jobs, conflicts, run, 1),
		"candidates for a recheck":               of(selectCandidates+limit, jobs, 0),
		"a run's round":                          available(none),
		"a run's round, four eyes":               available(conflicts),
		"an inbox's round":                       of(selectInboxAlone+limit, inbox, none, 1, 1),
		"an inbox's round, four eyes":            of(selectInbox+limit, inbox, conflicts, 1, 1),
		"a claim":                                of(selectNamed, jobs, none, old, 1, nil, nil, nil, false, 0),
		"a claim of an inbox, four eyes":         of(selectNamed, inbox, conflicts, old, 1, nil, nil, nil, true, 1),
		"who holds it":                           of(selectHeld, jobs, old, "ann", ""),
		"a push":                                 of(insertItems, inbox, "boss", []string{old}, []int32{0}, []*time.Time{nil}, []*int{nil}, []string{""}, []string{"{}"}, 1, []*time.Time{nil}, []*int{nil}, 1, []*string(nil), []*time.Time(nil)),
		"what a replica's run has":               of(ranking.BlockedItems, jobs, []string{old}, time.Now(), []*string{nil}, []int{1}),
		"a replica's run of several places":      of(ranking.BlockedItems, jobs, []string{old}, time.Now(), []*string{nil}, []int{3}),
		"a run: what is blocked":                 {n.Ranker.Wrapped(oldQuery, jobs, 1), nil},
		"a run of several places: what is taken": {n.Ranker.Wrapped(oldQuery, jobs, 3), nil},
	}
}

const oldQuery = "select 'old' as item"

// buffersOf returns how many pages each of the statements reads: their time depends on that, and it is the same on every
// machine.
func buffersOf(t *testing.T, db *pgxpool.Pool, statements map[string]looked) map[string]int {
	t.Helper()
	read := map[string]int{}
	for what, l := range statements {
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), pg.OwnPlans); err != nil {
				return err
			}
			var plans []struct {
				Plan struct {
					Hit  int `json:"Shared Hit Blocks"`
					Read int `json:"Shared Read Blocks"`
				}
			}
			for range 2 { // the first execution marks dead rows
				if err := tx.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+l.sql, l.args...).Scan(&plans); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
			}
			read[what] = plans[0].Plan.Hit + plans[0].Plan.Read
			return errRolledBack
		})
		if !errors.Is(err, errRolledBack) {
			t.Fatal(err)
		}
	}
	return read
}

var errRolledBack = errors.New("rolled back")

// However often an item was handed out and closed, every statement that reads it reads as much as of an item without history,
// before the tables have statistics and after.
func TestOneItemsHistoryIsNotRead(t *testing.T) {
	schematest.Thorough(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	eyes := newInbox(t, n, "eyes", nil)
	inbox := newInbox(t, n, "inbox", func(s *assign.Settings) { s.ConflictsWith = []string{"eyes"} })
	jobs := newTask(t, n, "jobs", "select * from (values ('first'), ('old'), ('other')) j (item)", func(s *assign.Settings) {
		s.FreshFor, s.ConflictsWith = assign.Duration(time.Hour), []string{"eyes"}
	})
	n.push(t, "inbox", old)
	if w := n.take(t, "jobs", "ann"); w.Item != "first" {
		t.Fatal(w.Item)
	}
	run := query[int64](t, db, `select shelf_run from getwork.task_state where task_id = $1`, jobs.ID)
	statements := lookedAt(n, jobs.ID, eyes.ID, inbox.ID, run)
	execute(t, db, "vacuum getwork.work, getwork.item")
	few := buffersOf(t, db, statements)
	for _, task := range []int64{jobs.ID, inbox.ID, eyes.ID} {
		execute(t, db, closings, task, old, 20_000)
	}
	compare := func(when string) {
		t.Helper()
		for what, many := range buffersOf(t, db, statements) {
			// An index of so many rows is deeper, and the rows that are found there are read; so is each of the five users
			// who completed it elsewhere.
			if many > few[what]+60 {
				t.Errorf("%s: %s reads %d pages after 20,000 closings, %d before them", when, what, many, few[what])
			}
		}
	}
	compare("without statistics")
	execute(t, db, "vacuum analyze getwork.work, getwork.item")
	compare("with statistics")
	// And the result is right: the item can be handed out, and counts by its last closing.
	if w, claimed, err := n.Claim(t.Context(), "inbox", old, who("zoe")); err != nil || !claimed || w.Attempt != 1 {
		t.Errorf("claimed %t, attempt %d (%v)", claimed, w.Attempt, err)
	}
	_, _, err := n.Claim(t.Context(), "jobs", old, who("user 0"))
	wantKind(t, err, assign.NotAvailable)
}
