package engine

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// When all pages read the list of tasks at once because it has changed, that takes one connection, and not all those that
// clicks need.
func TestTheListOfTasksIsReadForAllAtOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	newTask(t, n, "task", numbers, nil)
	lock, err := db.Begin(t.Context()) // so that reading takes a while
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), `lock table getwork.task_version in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ask := func() {
		if tasks, err := n.Tasks(t.Context()); err != nil || len(tasks) != 1 {
			t.Errorf("%d tasks, %v", len(tasks), err)
		}
	}
	all.Go(ask)
	await(t, "they are read", func() bool {
		return schematest.LockWaits(t, db) > 0
	})
	for range 49 {
		all.Go(ask)
	}
	await(t, "the others wait for the next reading", func() bool { return n.Queued() == 49 })
	if busy := n.pools.API.Stat().AcquiredConns(); busy != 1 {
		t.Errorf("it takes %d connections", busy)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
}

// Removing old candidates does not walk through a shelf that stays, however large it is, and removes those of runs that are
// over.
func TestTidyWalksThroughNoShelf(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	const size = 20_000
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	ids := []int64{}
	for _, name := range []string{"a", "b", "c"} {
		task := newTask(t, n, name, numbers, nil).ID
		run := query[int64](t, db, `
insert into getwork.run (task_id, version, node, state, finished_at, error) values ($1, 1, 'n', 'failed', clock_timestamp() - interval '1 hour', 'oh') returning id`, task)
		execute(t, db, `insert into getwork.candidate (run_id, rank, item, details) select $1, i, i, '{}' from generate_series(1, $2::integer) i`, run, size)
		execute(t, db, insertPlaces, run)
		execute(t, db, `update getwork.task_state set shelf_run = $2, fresh_until = clock_timestamp() - interval '30 minutes' where task_id = $1`, task, run)
		ids = append(ids, run)
	}
	tidy := func() (plan string, looked int) {
		t.Helper()
		err := pgx.BeginTxFunc(t.Context(), db, pg.ReadCommitted, func(tx pgx.Tx) error {
			rows, err := tx.Query(t.Context(), `explain (analyze, timing off) `+removeCandidates)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			plan = strings.Join(lines, "\n")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, " on candidate ") || strings.Contains(plan, "Seq Scan on candidate") {
			t.Errorf("not by an index:\n%s", plan)
		}
		for _, m := range regexp.MustCompile(`Scan using \w+ on candidate .*actual rows=(\d+)|Rows Removed by Filter: (\d+)`).FindAllStringSubmatch(plan, -1) {
			rows, _ := strconv.Atoi(m[1] + m[2])
			looked += rows
		}
		return plan, looked
	}
	if plan, looked := tidy(); looked > 100 {
		t.Errorf("%d candidates were read:\n%s", looked, plan)
	}
	execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp() - interval '49 hours' where name = 'b'`)
	await(t, "what is over is removed", func() bool {
		tidy()
		return query[int](t, db, `select count(*) from getwork.candidate where run_id = $1`, ids[1]) == 0
	})
	if left := query[int](t, db, `select count(*) from getwork.candidate`); left != 2*size {
		t.Errorf("%d candidates are left", left)
	}
	await(t, "their places are removed, too", func() bool {
		execute(t, db, removePlaces)
		return query[int](t, db, `select count(*) from getwork.candidate_place where run_id = $1`, ids[1]) == 0
	})
	if got := query[int](t, db, `select sum(cardinality(ranks)) from getwork.candidate_place`); got != 2*size {
		t.Errorf("%d places are left", got)
	}
}
