package engine

import (
	"fmt"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

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
	for where, o := range map[string]nodeOptions{"here": {role: role}, "there": {queries: through}} {
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
	n := startNode(t, address, nodeOptions{role: role})
	newTask(t, n, "nothing", `select id as item from loan`, nil)
	if r := n.endedRequest(t, n.click(t, "nothing", "ann", 1).ID); r.State != assign.None || r.Reason == nil || *r.Reason != assign.NoMatch {
		t.Errorf("without a policy ann's request is %s %v", r.State, r.Reason)
	}
}
