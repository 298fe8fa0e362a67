package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A user holds at most max_open of a task, in however many tabs, programs and nodes they ask at once, and by whatever call.
func TestMaxOpen(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, kind := range []string{"inbox", "query", "shelf"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			a, b := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})
			db := pool(t, url)
			limit := 3
			sql := numbers
			if kind == "inbox" {
				sql = ""
			}
			newTask(t, a, "jobs", sql, func(s *assign.Settings) {
				s.MaxOpen = &limit
				if kind == "shelf" {
					s.FreshFor = assign.Duration(time.Hour)
				}
			})
			if kind == "inbox" {
				a.push(t, "jobs", "1", "2", "3", "4", "5", "6", "7", "8", "9")
			}
			if kind == "shelf" {
				a.take(t, "jobs", "somebody")
			}
			var all sync.WaitGroup
			for i := range 8 {
				n := []*node{a, b}[i%2]
				all.Go(func() {
					if i%4 == 3 {
						_, _, err := n.Claim(t.Context(), "jobs", fmt.Sprint(i), who("ann"))
						if err != nil && !assign.IsRefusal(err, assign.NotAvailable) && !assign.IsRefusal(err, assign.NoSlot) {
							t.Error(err)
						}
						return
					}
					h := assign.Holder{User: "ann", Instance: []string{"", "x", "y"}[i%3]}
					r, err := n.GetWork(t.Context(), "jobs", assign.Click{Holder: h, Count: 1 + i%2})
					if err != nil {
						t.Error(err)
						return
					}
					if r = n.endedRequest(t, r.ID); r.State != assign.Assigned && why(r) != assign.AtLimit { // there are always more than ann may have
						t.Errorf("%s %v", r.State, why(r))
					}
				})
			}
			all.Wait()
			if got := query[int](t, db, `select count(*) from getwork.work where user_name = 'ann' and state = 'held'`); got != limit {
				t.Errorf("ann holds %d, want %d", got, limit)
			}
			before := runs(t, db)
			if r := a.linger(t, "jobs", "ann", 1); r.State != assign.None || why(r) != assign.AtLimit {
				t.Errorf("at the limit: %s %v", r.State, why(r))
			}
			if got := runs(t, db); got != before {
				t.Errorf("%d runs for a user who is at the limit", got-before)
			}
			_, _, err := a.Claim(t.Context(), "jobs", "9", who("ann"))
			wantKind(t, err, assign.NotAvailable)
			p, err := a.UserPipeline(t.Context(), "ann")
			if err != nil {
				t.Fatal(err)
			}
			a.let(t, p.Work[0], assign.Disposition{Outcome: "complete"})
			if r := a.endedRequest(t, a.click(t, "jobs", "ann", 3).ID); r.State != assign.Partial || r.Assigned != 1 {
				t.Errorf("with room for one of three: %s, %d", r.State, r.Assigned)
			}
		})
	}
}
