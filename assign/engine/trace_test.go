package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Both ways to record a click record the span of its click, each at its own row, and nothing where there is none.
func TestTraceparentsAreRecorded(t *testing.T) {
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		t.Run(fmt.Sprintf("pooled %v", pooled), func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{pooled: pooled})
			db := pool(t, url)
			newTask(t, n, "query", numbers, func(s *assign.Settings) { s.Paused = true })
			newInbox(t, n, "inbox", nil)
			for task, users := range map[string][]string{"query": {"ann", "bob=1", "cyd", "dee=2", "eve"}, "inbox": {"ann=3", "bob", "cyd=4"}} {
				var clicks []*click
				for i := range users { // the last first: they are sorted before they are inserted
					user, span, _ := strings.Cut(users[len(users)-1-i], "=")
					c := assign.Click{Holder: assign.Holder{User: user}, Count: 1, Linger: assign.Duration(time.Hour)}
					if span != "" {
						c.Traceparent = "00-0000000000000000000000000000000" + span + "-000000000000000" + span + "-01"
					}
					clicks = append(clicks, &click{Click: c, holder: c.Holder, done: make(chan struct{})})
				}
				(recorder{n.Engine}).recordBatch(t.Context(), task, clicks)
				for _, k := range clicks {
					if k.err != nil {
						t.Fatal(k.err)
					}
				}
				if got := query[string](t, db, `
select string_agg(r.user_name || coalesce('=' || right(r.traceparent, 4), ''), ' ' order by r.user_name)
from getwork.work_requested r join getwork.task_state s using (task_id) where s.name = $1`, task); got != suffixed(users) {
					t.Errorf("%s: %s, want %s", task, got, suffixed(users))
				}
				untraced := []*click{{Click: assign.Click{Holder: assign.Holder{User: "fay"}, Count: 1}, holder: assign.Holder{User: "fay"}, done: make(chan struct{})}}
				if (recorder{n.Engine}).recordBatch(t.Context(), task, untraced); untraced[0].err != nil {
					t.Fatal(untraced[0].err)
				}
			}
			if n := query[int](t, db, `select count(*) from getwork.work_requested where user_name = 'fay' and traceparent is null`); n != 2 {
				t.Errorf("%d requests have no span, want 2", n)
			}
		})
	}
}

// suffixed returns the users with the ends of their traceparents.
func suffixed(users []string) string {
	var all []string
	for _, u := range users {
		user, span, found := strings.Cut(u, "=")
		if found {
			user += "=" + span + "-01"
		}
		all = append(all, user)
	}
	return strings.Join(all, " ")
}
