package engine

import (
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/pgbouncer"
)

// Runs are given up, one after another, through a pooler that exits if a client hangs up before its cancel request is
// answered. The pooler lives.
func TestGivingUpRunsSparesThePooler(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	bouncer := pgbouncer.Start(t, url, pgbouncer.Options{})
	n := startNode(t, bouncer.URL, nodeOptions{pooled: true, deaf: true})
	task := newTask(t, n, "verify", `select 1 as item from pg_sleep(600)`, nil)
	db := pool(t, url)
	const running = `select count(*) = 1 from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`
	for i := range 12 {
		r := n.click(t, "verify", "oliver", 1)
		await(t, "the query runs", func() bool { return query[bool](t, db, running) })
		if _, err := n.Cancel(t.Context(), r.ID, assign.Holder{User: "oliver"}, false); err != nil {
			t.Fatal(err)
		}
		await(t, "the run is given up", func() bool {
			return query[int](t, db, `select count(*)::integer from getwork.run where task_id = $1 and state = 'cancelled'`, task.ID) == i+1
		})
	}
	bouncer.Tell("show version") // fails if the pooler was restarted
}
