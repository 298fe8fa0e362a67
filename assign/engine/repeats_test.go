package engine

import (
	"fmt"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// The first row of an item decides. If it is blocked, a later row that gives it more places or no group frees nothing.
func TestRepeatsOfABlockedItem(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `create table loan (n serial, id text, places integer, team text)`)
	blocked := map[string]string{
		"held":    `insert into getwork.work (task_id, item, user_name) values ($1, 'x', 'ann')`,
		"never":   `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid) values ($1, 'x', 'ann', 'never', clock_timestamp(), pg_current_xact_id())`,
		"put off": `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, after, available_at) values ($1, 'x', 'ann', 'returned', clock_timestamp(), pg_current_xact_id(), '1 hour', clock_timestamp() + interval '1 hour')`,
	}
	for where, o := range map[string]nodeOptions{"here": {}, "elsewhere": {Queries: reader(t, url, "loan")}} {
		n := startNode(t, url, o)
		for how, block := range blocked {
			for between := range 2 {
				for what, sql := range map[string]string{
					"more places": `select id as item, places as slots from loan order by n`,
					"no group":    `select id as item, team as exclusive from loan order by n`,
				} {
					name := strings.ReplaceAll(fmt.Sprintf("%s %s %s %d rows between", where, how, what, 1500*between), " ", "-")
					execute(t, db, `truncate loan restart identity`)
					execute(t, db, `insert into loan (id, places, team) select case when i in (0, $1 + 1) then 'x' end, case when i > 0 then 2 else 1 end, case when i = 0 then 'a' end from generate_series(0, $1::integer + 1) i`, 1500*between)
					task := newTask(t, n, name, sql, func(s *assign.Settings) { s.Slots = 2 })
					execute(t, db, block, task.ID)
					if r := n.endedRequest(t, n.click(t, name, "bob", 1).ID); r.State != assign.None {
						t.Errorf("%s: bob's request is %s, %q", name, r.State, items(r))
					}
					got := query[string](t, db, `select given || ' ' || blocked || ' ' || passed_over from getwork.run where task_id = $1`, task.ID)
					if want := fmt.Sprint(2+1500*between, 1, 1+1500*between); got != want {
						t.Errorf("%s: given, blocked, passed over: %s, want %s", name, got, want)
					}
				}
			}
		}
	}
}
