package story

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
)

// Four eyes: a user who enters a payment does not approve it, wherever they click. One task has a query, the other is
// an inbox.
func TestFourEyes(t *testing.T) {
	t.Parallel()
	const payments, people, clicks = 60, 20, 10
	s := newSite(t, 3, "")
	s.Exec(fmt.Sprintf(`create table payment (id text primary key); insert into payment select 'p' || i from generate_series(1, %d) i`, payments))
	s.Create(map[string]any{"name": "enter", "query": "select id as item from payment order by id", "fresh_for": "2s"})
	s.Create(map[string]any{"name": "approve", "query": nil, "conflicts_with": []string{"enter"}})
	items := make([]assign.NewItem, payments)
	for i := range items {
		items[i].Item = fmt.Sprint("p", i+1)
	}
	if _, err := s.As("mary", 0).Push(t.Context(), "approve", items...); err != nil {
		t.Fatal(err)
	}
	var working sync.WaitGroup
	for i := range people {
		working.Go(func() {
			for j := range clicks {
				s.enterOrApprove(fmt.Sprintf("clerk-%02d", i), i+j)
			}
		})
	}
	working.Wait()
	s.bothAtOnce()
	done := column[int64](s, `select count(distinct item) from getwork.work where state = 'completed' group by task_id`)
	if len(done) != 2 || min(done[0], done[1]) < payments/4 {
		t.Errorf("completed %v of each, which is too little for a load", done)
	}
	s.barred()
	if both := column[string](s, `
select b.user_name || ' ' || b.item
from getwork.work a join getwork.work b using (item, user_name)
where a.task_id <> b.task_id and a.assigned_at <= b.assigned_at
  and (a.state = 'completed' or b.assigned_at < coalesce(a.closed_at, 'infinity'))`); len(both) > 0 {
		t.Errorf("held or completed both sides: %v", both)
	}
	s.Promises()
}

// enterOrApprove clicks on one of the tasks, and completes the work or, now and then, lets it come back.
func (s *site) enterOrApprove(user string, n int) {
	task := "enter"
	if rand.N(2) == 0 {
		task = "approve"
	}
	who := s.As(user, n%3)
	r, a, err := who.GetWork(s.T.Context(), task, 1+n%3, "Prefer", "wait=60")
	if err != nil || a.Status != 201 {
		s.T.Errorf("click of %s: %d %s, %v", user, a.Status, a.Body, err)
		return
	}
	for i, w := range r.Work {
		outcome, after := "complete", ""
		if (n+i)%3 == 0 {
			outcome, after = "return", "0s"
		}
		if _, a, err := s.As(user, (n+1)%3).Dispose(s.T.Context(), w.ID, outcome, after); err != nil || a.Status != 200 {
			s.T.Errorf("%s: %d %s, %v", user, a.Status, a.Body, err)
		}
	}
}

// bothAtOnce has users claim both sides of new payments at the same time, on two nodes: one claim is refused.
func (s *site) bothAtOnce() {
	s.T.Helper()
	const rounds = 20
	for i := range rounds {
		item, user := fmt.Sprint("new-", i), fmt.Sprint("quick-", i)
		s.Exec(`insert into payment values ($1)`, item)
		if _, err := s.As("mary", i%3).Push(s.T.Context(), "approve", assign.NewItem{Item: item}); err != nil {
			s.T.Fatal(err)
		}
		var answers [2]cluster.Answer
		var claiming sync.WaitGroup
		for j, task := range []string{"enter", "approve"} {
			claiming.Go(func() { _, answers[j], _ = s.As(user, (i+j)%3).Claim(s.T.Context(), task, item) })
		}
		claiming.Wait()
		refused := 0
		for _, a := range answers {
			if a.Status == 409 && a.Problem.Type == "/problems/not-available" {
				refused++
			} else if a.Status != 201 {
				s.T.Errorf("claim: %d %s", a.Status, a.Body)
			}
		}
		if refused != 1 {
			s.T.Errorf("of two claims for both sides of %s, %d were refused", item, refused)
		}
	}
}

// barred: a rule keeps items from a user, and the answer says so; others get them.
func (s *site) barred() {
	s.T.Helper()
	for _, task := range []string{"fill-in", "sign"} {
		settings := map[string]any{"name": task, "query": nil}
		if task == "sign" {
			settings["conflicts_with"] = []string{"fill-in"}
		}
		s.Create(settings)
		if _, err := s.As("mary", 0).Push(s.T.Context(), task, assign.NewItem{Item: "form"}); err != nil {
			s.T.Fatal(err)
		}
	}
	s.Disposed(s.As("zoe", 0), s.Got(s.As("zoe", 0), "sign", 1).Work[0], "complete", "")
	if r := s.Got(s.As("zoe", 1), "fill-in", 1); r.State != assign.None || e2e.Why(r) != assign.Rules { // the rule counts both ways
		s.T.Errorf("zoe, who has signed, gets to fill in: %+v", r)
	}
	if _, a, err := s.As("zoe", 2).Claim(s.T.Context(), "fill-in", "form"); err != nil || a.Status != 409 || a.Problem.Type != "/problems/not-available" {
		s.T.Errorf("zoe claims: %d %s, %v", a.Status, a.Body, err)
	}
	x, err := s.As("mary", 2).Explain(s.T.Context(), "fill-in", "form")
	if err != nil || !x.Available || len(x.Barred) != 1 || x.Barred[0].User != "zoe" {
		s.T.Errorf("explain: %+v, %v", x, err)
	}
	if r := s.Got(s.As("yan", 1), "fill-in", 1); len(r.Work) != 1 {
		s.T.Errorf("yan got %+v", r)
	}
}
