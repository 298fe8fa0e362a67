package report

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/schema/schematest"
)

// Holders are read by an index of held work, whatever the statistics say, without reading the history.
func TestHoldersByIndex(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	const held, past = 900, 100_000
	url := schematest.URL(t)
	n := start(t, url)
	db := enginetest.Pool(t, url)
	task := n.newTask(t, "task", `select 1 as item`).ID
	other := n.newTask(t, "other", `select 1 as item`).ID
	enginetest.Execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
		select $1, 'over ' || i, 'user ' || i % 300, 'completed', clock_timestamp(), pg_current_xact_id() from generate_series(1, $2::integer) i`, task, past)
	enginetest.Execute(t, db, `insert into getwork.work (task_id, item, user_name, assigned_at)
		select case when i % 3 = 0 then $2::bigint else $1 end, 'held ' || i, 'user ' || i % 300, now() from generate_series(1, $3::integer) i`, task, other, held)
	for _, statistics := range []string{"none", "taken"} {
		if statistics == "taken" {
			enginetest.Execute(t, db, `analyze getwork.work`)
		}
		for name, c := range map[string]struct {
			tasks []int64
			user  string
		}{
			"all": {[]int64{task, other}, ""}, "of a task": {[]int64{task}, ""}, "of a user": {[]int64{task, other}, "user 3"}, "of both": {[]int64{other}, "user 3"},
		} {
			if plan, scans, rows := holdersPlan(t, db, c.tasks, c.user); scans != 1 || rows > held {
				t.Errorf("statistics %s, %s: %d rows were read by %d scans of indexes of what is held:\n%s", statistics, name, rows, scans, plan)
			}
		}
	}
	began := time.Now()
	holders, total, err := n.Holders(t.Context(), assign.HolderFilter{Limit: 200})
	if err != nil || len(holders) != 200 || total != (assign.HeldTotal{Users: 300, Held: held}) {
		t.Errorf("%d holders, %+v, %v", len(holders), total, err)
	}
	t.Log("read in", time.Since(began))
}

// ofHeld matches a plan's scans of held work: the index, and the number of rows.
var ofHeld = regexp.MustCompile(`(?m)Index Scan using (work_held_slot|work_holder) on work w .*actual rows=(\d+)(?:\.\d+)? loops=1\)`)

// holdersPlan returns the plan of reading holders: how many scans of held-work indexes it has, and how many rows those read.
func holdersPlan(t *testing.T, db *pgxpool.Pool, tasks []int64, user string) (plan string, scans, rows int) {
	t.Helper()
	err := pgx.BeginTxFunc(t.Context(), db, byEntry, func(tx pgx.Tx) error {
		lines, err := tx.Query(t.Context(), `explain (analyze, timing off) `+selectHolders, tasks, user, time.Time{}, 0, 200)
		if err != nil {
			return err
		}
		all, err := pgx.CollectRows(lines, pgx.RowTo[string])
		plan = strings.Join(all, "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(plan, " on work w") != 1 {
		return plan, 0, 0
	}
	for _, m := range ofHeld.FindAllStringSubmatch(plan, -1) {
		n, _ := strconv.Atoi(m[2])
		scans, rows = scans+1, rows+n
	}
	return plan, scans, rows
}
