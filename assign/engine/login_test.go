package engine

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/pgbouncer"
)

// Limits that the bank sets on the login or the database for other programs do not end a run in the middle: filling its shelf
// takes longer than they allow.
func TestLimitsOfTheLogin(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	name := pgx.Identifier{query[string](t, db, `select current_database()`)}.Sanitize()
	for _, limit := range []string{"statement_timeout = '150ms'", "default_transaction_read_only = on", "search_path = nowhere", "default_transaction_isolation = 'serializable'",
		"datestyle = 'SQL, DMY'", "bytea_output = 'escape'"} {
		execute(t, db, `alter database `+name+` set `+limit)
	}
	n := startNode(t, url, nodeOptions{})
	const slow = `select i as item from generate_series(1, 100000) i, (select pg_sleep(0.3)) s order by i`
	newTask(t, n, "task", slow, func(s *assign.Settings) { s.FreshFor, s.MaxCandidates = assign.Duration(time.Hour), 100_000 })
	if r := n.endedRequest(t, n.click(t, "task", "ann", 1).ID); r.State != assign.Assigned {
		t.Fatalf("the request is %s (%v)", r.State, r.Error)
	}
	if r := n.click(t, "task", "bob", 1); r.State != assign.Assigned {
		t.Errorf("from the shelf it is %s (%v)", r.State, r.Error)
	}
	if found, err := n.WorkHistory(t.Context(), assign.WorkFilter{User: "ann", Limit: 9}); err != nil || len(found) != 1 {
		t.Errorf("the history has %d works, %v", len(found), err)
	}
}

// Through a pooler, where everything comes as text, the styles that the database sets for other programs do not matter either.
func TestStylesThroughAPooler(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	name := pgx.Identifier{query[string](t, db, `select current_database()`)}.Sanitize()
	for _, style := range []string{"datestyle = 'SQL, DMY'", "bytea_output = 'escape'", "intervalstyle = 'iso_8601'"} {
		execute(t, db, `alter database `+name+` set `+style)
	}
	n := startNode(t, pgbouncer.Start(t, url, pgbouncer.Options{}).URL, nodeOptions{pooled: true, deaf: true})
	newTask(t, n, "task", `select (date '2026-03-04' + i)::text as item from generate_series(1, 3) i order by i`, nil)
	n.click(t, "task", "ann", 1)
	await(t, "ann has work", func() bool {
		found, err := n.WorkHistory(t.Context(), assign.WorkFilter{User: "ann", Limit: 9})
		if err != nil {
			t.Fatal(err)
		}
		return len(found) == 1
	})
	if p, err := n.Pipeline(t.Context(), assign.Holder{User: "ann"}); err != nil || len(p.Work) != 1 {
		t.Errorf("the pipeline has %d works, %v", len(p.Work), err)
	}
}
