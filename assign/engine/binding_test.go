package engine

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/schema/schematest"
)

// What is held is looked up by item also by a plan that was made while the table was nearly empty. Until the table's first analyze
// such a plan serves everybody, and by the index of holders each look-up would read all that is held.
func TestHeldByItemWithoutStatistics(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", numbers, nil).ID
	for _, held := range []int{0, 1, 60} {
		execute(t, db, `insert into getwork.work (task_id, item, user_name) select $1, 'held ' || $2::integer || '-' || i, 'ann' from generate_series(1, $2) i`, task, held)
		for _, c := range []struct {
			sql  string
			args []any
		}{
			{`select w.id from unnest($2::text[]) c (item) cross join lateral (select w.id from ` + records.Binding + ` w where w.task_id = $1 and w.item = c.item) w`, []any{task, []string{"a", "b"}}},
			{selectNamed, []any{task, []int64{task + 1}, "a", 1, nil, nil, nil, false}}, // as does a conflict with another task
		} {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				var plan string
				err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), pg.OwnPlans+`; set local plan_cache_mode = `+mode); err != nil {
						return err
					}
					return tx.QueryRow(t.Context(), `explain (format json) `+n.SQL(c.sql), c.args...).Scan(&plan)
				})
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(plan, `"work_held_slot"`) || strings.Contains(plan, `"work_holder"`) {
					t.Errorf("%d held, %s:\n%s", held, mode, plan)
				}
			}
		}
	}
}
