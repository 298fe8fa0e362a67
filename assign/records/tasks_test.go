package records

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
)

// Long shelves are not counted one by one, and inboxes only up to 10,000 for a scrape, which reads all tasks.
func TestLongShelvesAreNotRead(t *testing.T) {
	t.Parallel()
	const tasks, long = 30, 500
	pool := withTask(t)
	for _, statement := range []string{
		`insert into getwork.task select from generate_series(2, 30)`,
		`insert into getwork.task_version (task_id, version, name, query, fresh_for, created_by)
			select id, 2, 'task-' || id, 'select 1 as item', interval '1 hour', 'mia' from getwork.task where id > 0`,
		`insert into getwork.run (task_id, version, node, state, finished_at) select id, 2, 'n1', 'cancelled', clock_timestamp() from getwork.task where id > 0`,
		`delete from getwork.task_state`,
		`insert into getwork.task_state (task_id, name, version, shelf_run, shelf_left, fresh_until, expires_at)
			select u.task_id, 'task-' || u.task_id, 2, u.id, 400, until, until from getwork.run u, (select clock_timestamp() + interval '1 hour') f (until)`,
		`insert into getwork.candidate (run_id, rank, item, details) select u.id, i, i, '{}' from getwork.run u, generate_series(1, 500) i`,
		`update getwork.task_state set shelf_left = 300000 where name = 'task-2'`,
		`update getwork.candidate set rank = 400000 where run_id = (select shelf_run from getwork.task_state where name = 'task-2') and rank = 500`,
		`update getwork.task_state set shelf_from = 496, shelf_left = 9 where name = 'task-3'`, // four were claimed
		`update getwork.task_state set shelf_from = 491, shelf_left = 7 where name = 'task-4'`, // three were handed out behind the best
		`update getwork.task_state set shelf_from = 9223372036854775807 where name = 'task-5'`,
		`update getwork.task_state set version = 1 where name = 'task-1'`, // an inbox
		`insert into getwork.item (task_id, item, pushed_by) select 1, i, 'mia' from generate_series(1, 10001) i`,
	} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name string) int {
		if n, special := map[string]int{"task-1": 10_001, "task-2": 100_000, "task-3": 5, "task-4": 7, "task-5": 0}[name]; special {
			return n
		}
		return 400
	}
	rs := New(pg.Router{Calls: pool}, nil)
	all, err := rs.SomeTasks(t.Context(), nil, nil, nil)
	if err != nil || len(all) != tasks {
		t.Fatalf("%d tasks, %v", len(all), err)
	}
	for _, task := range all {
		if task.Shelf != int64(want(task.Name)) {
			t.Errorf("%s has %d on the shelf, want %d", task.Name, task.Shelf, want(task.Name))
		}
	}
	figures, err := rs.TaskFigures(t.Context())
	if err != nil || len(figures) != tasks {
		t.Fatalf("%d figures, %v", len(figures), err)
	}
	for _, f := range figures {
		want := want(f.Name)
		if f.Name == "task-1" {
			want = 10_000
		}
		if f.Shelf != want {
			t.Errorf("the figure of %s is %d, want %d", f.Name, f.Shelf, want)
		}
	}
	for name, statement := range map[string]string{"selectTasks": selectTasks, "selectTaskFigures": selectTaskFigures} {
		var args []any
		if statement == selectTasks {
			args = []any{nil, nil, nil}
		}
		rows, err := pool.Query(t.Context(), "explain (analyze, timing off) "+statement, args...)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		text, read := strings.Join(plan, "\n"), 0.0
		for _, m := range regexp.MustCompile(`on candidate c .*actual rows=([0-9.]+) loops=(\d+)`).FindAllStringSubmatch(text, -1) {
			each, _ := strconv.ParseFloat(m[1], 64)
			loops, _ := strconv.ParseFloat(m[2], 64)
			read += each * loops
		}
		if read == 0 || read > tasks {
			t.Errorf("%s reads %.0f candidates of %d:\n%s", name, read, tasks*long, text)
		}
	}
}
