package story

import (
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
)

// A request for more than there is gets what there is; the next one gets nothing, and is told why.
func TestPartialAndNone(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "")
	s.Task("verify", "select n as item from generate_series(1, 3) n")
	s.Task("empty", "select n as item from generate_series(1, 3) n where n > 3")
	for i, want := range []struct {
		user, task          string
		count               int
		state               assign.State
		reason              assign.Reason
		requested, assigned int
	}{
		{"oliver", "verify", 2, assign.Assigned, "", 2, 2},
		{"tracy", "verify", 2, assign.Partial, "", 1, 1},
		{"peter", "verify", 1, assign.None, assign.AllHeld, 0, 0},
		{"peter", "empty", 5, assign.None, assign.NoMatch, 0, 0},
	} {
		r, a, err := s.As(want.user, i%2).GetWork(t.Context(), want.task, want.count, "Prefer", "wait=60")
		if err != nil || a.Status != 201 {
			t.Fatalf("%s: %d %s, %v", want.user, a.Status, a.Body, err)
		}
		var reason assign.Reason
		if r.Reason != nil {
			reason = *r.Reason
		}
		if r.State != want.state || reason != want.reason || r.Wanted != want.count || r.Requested != want.requested ||
			r.Assigned != want.assigned || len(r.Work) != want.assigned || r.CompletedAt == nil {
			t.Errorf("%s: %s", want.user, a.Body)
		}
		p, err := s.As(want.user, (i+1)%2).Pipeline(t.Context())
		if err != nil || len(p.Work) != want.assigned || len(p.Requests) != 0 {
			t.Errorf("pipeline of %s on another node: %+v, %v", want.user, p, err)
		}
	}
	for _, count := range []int{0, 6, -1} {
		if _, a, err := s.As("oliver", 0).GetWork(t.Context(), "verify", count); err != nil || a.Status != 400 || len(a.Problem.Errors) == 0 || a.Problem.Errors[0].Field != "count" {
			t.Errorf("count %d: %d %s, %v", count, a.Status, a.Body, err)
		}
	}
	s.NoDuplicates()
}

// A user clicks in six tabs on three nodes at once, and has one request, which gets its work once.
func TestOnePendingRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, "")
	query, open := s.Gated(1, 100)
	s.Task("verify", query)
	first := s.Click("oliver", 0, 2)
	answers := make([]assign.Request, 6)
	var clicking sync.WaitGroup
	for i := range answers {
		clicking.Go(func() {
			r, a, err := s.As("oliver", i%3).GetWork(t.Context(), "verify", 1+i%5)
			if err != nil || a.Status != 202 {
				t.Errorf("%d %s, %v", a.Status, a.Body, err)
			}
			answers[i] = r
		})
	}
	clicking.Wait()
	for _, r := range answers {
		if r.ID != first.ID || r.Wanted != 2 || r.Requested != 2 {
			t.Errorf("asked again: request %d wants %d; want %d that wants 2", r.ID, r.Wanted, first.ID)
		}
	}
	agent := s.As("oliver", 1)
	agent.Instance, agent.Role = "desk-7", "agent"
	r, _, err := agent.GetWork(t.Context(), "verify", 1)
	if err != nil || r.ID == first.ID || r.ID == 0 {
		t.Errorf("an instance of the same user got request %d, %v", r.ID, err)
	}
	open()
	s.Served("oliver", 2, first.ID, 20*time.Second)
	if p, err := s.As("oliver", 1).Pipeline(t.Context()); err != nil || len(p.Work) != 2 || len(p.Requests) != 0 {
		t.Errorf("pipeline %+v, %v", p, err)
	}
	if rows := column[int64](s, `select count(*) from getwork.work_requested where user_name = 'oliver' and instance = ''`); rows[0] != 1 {
		t.Errorf("%d requests were recorded", rows[0])
	}
	s.NoDuplicates()
}

// A click that is sent again, to any node, is answered with the request that it made.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "")
	s.Task("verify", e2e.Heavy(1, 100))
	key := []string{"Idempotency-Key", "click-1"}
	first, a, err := s.As("oliver", 0).GetWork(t.Context(), "verify", 2, key...)
	if err != nil || a.Status != 202 {
		t.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	var clicking sync.WaitGroup
	for i := range 6 {
		clicking.Go(func() {
			r, a, err := s.As("oliver", i%2).GetWork(t.Context(), "verify", 2, key...)
			if err != nil || a.Status >= 300 || r.ID != first.ID {
				t.Errorf("while pending: %d %s, %v", a.Status, a.Body, err)
			}
		})
	}
	clicking.Wait()
	s.Served("oliver", 1, first.ID, 20*time.Second)
	r, a, err := s.As("oliver", 1).GetWork(t.Context(), "verify", 2, key...)
	if err != nil || a.Status != 201 || r.ID != first.ID || r.State != assign.Assigned || len(r.Work) != 2 {
		t.Errorf("when served: %d %s, %v", a.Status, a.Body, err)
	}
	if _, a, err := s.As("oliver", 1).GetWork(t.Context(), "verify", 3, key...); err != nil || a.Status != 422 {
		t.Errorf("with another body: %d %s, %v", a.Status, a.Body, err)
	}
	r, a, err = s.As("tracy", 1).GetWork(t.Context(), "verify", 3, key...)
	if err != nil || a.Status != 202 || r.ID == first.ID {
		t.Errorf("somebody else's: %d %s, %v", a.Status, a.Body, err)
	}
	s.Served("tracy", 0, r.ID, 20*time.Second)
	if work := column[int64](s, `select count(*) from getwork.work`); work[0] != 5 {
		t.Errorf("%d were handed out; 5 were wanted", work[0])
	}
}
