package enginetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign/pg"
)

// Looked is a statement, in a node's own schema, and its arguments.
type Looked struct {
	SQL  string
	Args []any
}

// BuffersOf returns how many pages each of the statements reads: their time depends on that, and it is the same on every
// machine.
func BuffersOf(t *testing.T, db *pgxpool.Pool, statements map[string]Looked) map[string]int {
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
				if err := tx.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+l.SQL, l.Args...).Scan(&plans); err != nil {
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

// ByIndex checks that none of the statements reads all work, or a whole index of the past: not by a generic plan either, which is what
// a node's connections have after a few calls.
func ByIndex(t *testing.T, db *pgxpool.Pool, when string, statements map[string]Looked) {
	t.Helper()
	for name, c := range statements {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "set local plan_cache_mode = "+mode); err != nil {
					return err
				}
				lines, err := tx.Query(t.Context(), "explain "+c.SQL, c.Args...)
				if err != nil {
					return err
				}
				plan, err := pgx.CollectRows(lines, pgx.RowTo[string])
				for i, line := range plan {
					bare := strings.Contains(line, " using work_past_") || strings.Contains(line, " using work_pkey")
					if bare && (i+1 == len(plan) || !strings.Contains(plan[i+1], "Index Cond")) || strings.Contains(line, "Seq Scan on work ") {
						t.Errorf("%s, %s, %s reads all work:\n%s", name, when, mode, strings.Join(plan, "\n"))
						break
					}
				}
				return err
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// SameWithHistory checks that statements that read an item called old read no more of it when it has been closed 20,000 times in each of
// the tasks. An index of so many rows is deeper, and the rows that are found there are read; so is each of the five users who completed
// it elsewhere.
func SameWithHistory(t *testing.T, db *pgxpool.Pool, statements map[string]Looked, tasks ...int64) {
	t.Helper()
	few := BuffersOf(t, db, statements)
	for _, task := range tasks {
		Execute(t, db, closings, task, "old", 20_000)
	}
	for _, when := range []string{"without statistics", "with statistics"} {
		for what, many := range BuffersOf(t, db, statements) {
			if many > few[what]+60 {
				t.Errorf("%s: %s reads %d pages after 20,000 closings, %d before them", when, what, many, few[what])
			}
		}
		Execute(t, db, "vacuum analyze getwork.work, getwork.item")
	}
}

// MillionClosed writes a million rows of closed work of a task, of seven users and 300,000 items, and a hundred that are held, and calls
// check twice: before the tables have statistics, and after.
func MillionClosed(t *testing.T, db *pgxpool.Pool, task int64, check func(when string)) {
	t.Helper()
	Execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
		select $1, 'item ' || i % 300000, 'user ' || i % 7, 'completed', clock_timestamp(), pg_current_xact_id() from generate_series(1, 1000000) i`, task)
	Execute(t, db, `insert into getwork.work (task_id, item, user_name) select $1, 'held ' || i, 'user 3' from generate_series(1, 100) i`, task)
	check("statistics none")
	Execute(t, db, `analyze getwork.work`)
	check("statistics taken")
}

// closings are the history of an item ($2) that went from hand to hand for months: each way in which it can be closed and come back.
const closings = `
insert into getwork.work (task_id, item, slot, user_name, attempt, assigned_at, state, closed_at, closed_by, closed_xid, after, available_at)
select $1, $2, 1, 'user ' || i % 5, 1, closed.at - interval '30 seconds', closed.as, closed.at, 'ann', '3'::xid8,
  case closed.as when 'returned' then interval '0' end, case when closed.as in ('returned', 'failed') then closed.at end
from generate_series($3::integer, 1, -1) i
cross join lateral (select clock_timestamp() - i * interval '30 seconds' as at,
  (array['completed', 'returned', 'failed', 'expired', 'reassigned'])[1 + i % 5] as as) closed`
