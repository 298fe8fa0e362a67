package engine

import (
	"fmt"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A click's statements are planned a few times in a session, and no more. Planning takes longer than all else that PostgreSQL does
// for one click, and a number in LIMIT is enough to have it done each time.
func TestClicksArePlannedOnce(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "shelf", `select i as item from generate_series(1, 20000) i order by i`, func(s *assign.Settings) {
		s.MaxCandidates, s.FreshFor = 20_000, assign.Duration(time.Hour)
	})
	newInbox(t, n, "inbox", nil)
	items := make([]string, 5000)
	for i := range items {
		items[i] = fmt.Sprintf("item %d", i)
	}
	n.push(t, "inbox", items...)
	n.endedRequest(t, n.click(t, "shelf", "first", 1).ID)
	db := pool(t, url)
	shown := logIn(t, db, "ann")
	execute(t, db, `insert into getwork.principal (name, name_key, iss, sub, kind, role) select i, i, 'bank', i, 'person', 'worker' from generate_series(1, 5000) i`)
	execute(t, db, `insert into getwork.session (id, public_id, principal, role, ends_at)
		select sha256(convert_to(p.name, 'UTF8')), p.name, p.id, 'worker', clock_timestamp() + interval '10 hours' from getwork.principal p`)
	execute(t, db, `analyze`)
	for i := range 60 {
		for _, task := range []string{"shelf", "inbox"} {
			if r := n.click(t, task, fmt.Sprint("user ", i), 1+i%3); r.State != assign.Assigned {
				t.Fatalf("%+v", r)
			}
			c := assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Credential: shown, Groups: []string{"desk"}}
			if r, err := n.GetWork(t.Context(), task, c); err != nil || r.State != assign.Assigned {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	schematest.PlannedOnce(t, n.pools.API)
}

// A limit is never too small, at most a quarter too large, and one of few.
func TestAtMost(t *testing.T) {
	t.Parallel()
	few := map[int]bool{}
	for n := 1; n <= 1<<16; n++ {
		_, most := atMost(n)
		if most < n || 4*most > 5*n {
			t.Fatalf("%d for %d", most, n)
		}
		few[most] = true
	}
	if limit, _ := atMost(9); limit != "\nlimit 10" || len(few) > 4*16 {
		t.Errorf("%q, and %d limits", limit, len(few))
	}
}
