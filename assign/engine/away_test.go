package engine

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
)

// However much others hold, only the work of people who are away is read.
func TestAbsencesReadTheirPeoplesWork(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "common", `select 1 as item`, nil)
	execute(t, db, `alter table getwork.work set (autovacuum_enabled = off)`)
	execute(t, db, `insert into getwork.work (task_id, item, user_name) select $1, 'item ' || i, 'user ' || i % 30 from generate_series(1, 20000) i`, task.ID)
	execute(t, db, `analyze getwork.work, getwork.task_state, getwork.task_version, getwork.absence`)
	execute(t, db, `insert into getwork.absence (user_name, from_at, created_by) select 'absent ' || i, clock_timestamp(), 'boss' from generate_series(1, 50) i`)
	for name, c := range map[string]struct {
		sql  string
		args []any
	}{
		"selectTasksAway":        {selectTasksAway, []any{""}},
		"selectAnythingToRescue": {selectAnythingToRescue, nil},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "set local plan_cache_mode = "+mode); err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(), "explain "+n.SQL(c.sql), c.args...)
				if err != nil {
					return err
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				plan := strings.Join(lines, "\n")
				if !strings.Contains(plan, "Index Cond: (user_name = a.user_name)") || strings.Contains(plan, "work_held_slot") {
					t.Errorf("%s, %s:\n%s", name, mode, plan)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}
