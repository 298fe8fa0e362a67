package engine

import (
	"fmt"
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
	n := startNode(t, pgbouncer.Start(t, url, pgbouncer.Options{}).URL, nodeOptions{Pooled: true, Deaf: true})
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

// Row security on the bank's tables applies to ranking queries: they see what its policies show to the query role or the
// query login. The same holds for the recheck, previews, explanations and claims. The owner of the tables, as whom getwork
// may log in, sees everything.
func TestRowSecurity(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	address := schematest.URL(t)
	db := pool(t, address)
	execute(t, db, `create table loan as select i as id, 'north' as branch from generate_series(1, 9) i; update loan set branch = 'south' where id % 2 = 0`)
	through := reader(t, address, "loan")
	role := query[string](t, pool(t, through), `select current_user::text`)
	execute(t, db, `grant usage on schema getwork to `+role+`; grant select on getwork.blocked to `+role+`;
		alter table loan enable row level security; create policy own on loan to `+role+` using (branch = 'north')`)
	for where, o := range map[string]nodeOptions{"here": {Role: role}, "there": {Queries: through}} {
		n := startNode(t, address, o)
		newTask(t, n, where, `select id as item from loan order by id`, func(s *assign.Settings) {
			s.FreshFor, s.MaxRequest, s.Recheck = assign.Duration(time.Hour), 9, `select id::text as item from loan where id::text = any($1::text[])`
		})
		if r := n.endedRequest(t, n.click(t, where, "ann", 2).ID); fmt.Sprint(items(r)) != "[1 3]" {
			t.Errorf("%s: ann has %v, want what the policy shows", where, items(r))
		}
		execute(t, db, `update loan set branch = 'south' where id = 5`) // after the shelf was made
		if r := n.endedRequest(t, n.click(t, where, "bob", 5).ID); fmt.Sprint(items(r)) != "[7 9]" {
			t.Errorf("%s: bob has %v, want what the recheck shows still", where, items(r))
		}
		if p, err := n.Ranker.Preview(t.Context(), where, nil, 20); err != nil || p.Given != 4 {
			t.Errorf("%s: a preview shows %+v, %v", where, p, err)
		}
		if e, err := n.Explain(t.Context(), where, "2"); err != nil || e.Matches {
			t.Errorf("%s: what the policy hides matches: %+v, %v", where, e, err)
		}
		if _, _, err := n.Claim(t.Context(), where, "4", assign.Who{Holder: assign.Holder{User: "cyd"}}); !assign.IsRefusal(err, assign.NotFound) {
			t.Errorf("%s: what the policy hides is claimed: %v", where, err)
		}
		execute(t, db, `update loan set branch = 'north' where id = 5`)
	}
	execute(t, db, `drop policy own on loan`) // nothing is shown by default
	n := startNode(t, address, nodeOptions{Role: role})
	newTask(t, n, "nothing", `select id as item from loan`, nil)
	if r := n.endedRequest(t, n.click(t, "nothing", "ann", 1).ID); r.State != assign.None || r.Reason == nil || *r.Reason != assign.NoMatch {
		t.Errorf("without a policy ann's request is %s %v", r.State, r.Reason)
	}
}
