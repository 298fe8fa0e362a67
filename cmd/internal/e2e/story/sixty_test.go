package story

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
)

// Sixty people click within two seconds, on three nodes, while one query of three seconds runs for all of them.
func TestSixtyUsersOneQuery(t *testing.T) {
	t.Run("read committed", func(t *testing.T) { sixty(t, "") })
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			sixty(t, e2e.DatabaseAt(t, level))
		})
	}
}

func sixty(t *testing.T, url string) {
	s, before := newSite(t, 3, url), e2e.Overslept.Load()
	query, open := s.Gated(3, 1000)
	s.Task("verify", query)
	stop := s.Sample()
	requests := s.clicks(60, 2*time.Second)
	s.Sampled(1)
	open()
	total := 0
	for i, r := range requests {
		got := s.Served(r.User, (i+1)%3, r.ID, 30*time.Second) // asked on another node
		if len(got.Work) != r.Wanted || got.Assigned != r.Wanted || got.Requested != r.Wanted {
			t.Errorf("%s wanted %d: %+v", r.User, r.Wanted, got)
		}
		total += r.Wanted
	}
	if executions, atOnce := stop(); executions != 1 || atOnce != 1 {
		t.Errorf("%d executions, %d at once; want one", executions, atOnce)
	}
	if states := s.States(); states != "finished" {
		t.Errorf("runs: %s; want one that finished", states)
	}
	s.NoDuplicates()
	for i := range s.Nodes {
		stood := time.Duration(e2e.Overslept.Load() - before) // after two seconds another node may find a waiting request
		if n := s.Figure(i, "getwork_requests_rescued_total"); n != 0 && stood < time.Second {
			t.Errorf("only the sweep of node %[2]d found %[1]v requests, though no process died", n, i)
		}
	}
	items := column[string](s, `select item from getwork.work order by request_id, rank`)
	if len(items) != total {
		t.Errorf("%d items were handed out, %d were wanted", len(items), total)
	}
	for i, item := range items {
		if item != fmt.Sprint(i+1) {
			t.Fatalf("item %d in the order of requests is %s: not first come first served, or not best first", i+1, item)
		}
	}
}

// clicks has n users click, evenly spread over that time and over the nodes.
func (s *site) clicks(n int, over time.Duration) []assign.Request {
	s.T.Helper()
	requests := make([]assign.Request, n)
	var slowest time.Duration // without the time for which the machine stood still
	var mu sync.Mutex
	var clicking sync.WaitGroup
	next := time.NewTicker(over / time.Duration(n))
	defer next.Stop()
	for i := range requests {
		clicking.Go(func() {
			user, still := fmt.Sprintf("user-%02d", i), s.Standstill()
			r, a, err := s.As(user, i%len(s.Nodes)).GetWork(s.T.Context(), "verify", 1+i%5)
			if err != nil || a.Status != 202 {
				s.T.Errorf("click of %s: %d %s %v", user, a.Status, a.Body, err)
			}
			mu.Lock()
			defer mu.Unlock()
			requests[i], slowest = r, max(slowest, a.Took-still())
		})
		<-next.C
	}
	clicking.Wait()
	s.T.Logf("the slowest click took %v", slowest)
	if slowest > time.Second {
		s.T.Errorf("a click took %v", slowest)
	}
	if s.T.Failed() {
		s.T.FailNow()
	}
	return requests
}
