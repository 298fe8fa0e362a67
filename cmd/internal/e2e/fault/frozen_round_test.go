package fault

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
)

// assigning reports whether a session holds the assign lock.
const assigning = `with free as (select task_id from getwork.task_state for no key update skip locked) select count(*) = 0 from free`

// A node freezes while it records and serves from a fresh shelf, holding the assign lock: it loses the lock after a
// while, and others go on.
func TestFrozenWithTheAssignLock(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "")
	if err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "verify", "fresh_for": "1h", "max_candidates": 100000,
		"query": "select n as item from generate_series(1, 100000) n"}); err != nil {
		t.Fatal(err)
	}
	if _, a, err := s.As("mary", 0).GetWork(t.Context(), "verify", 1, "Prefer", "wait=60"); err != nil || a.Status != 201 {
		t.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	end := s.hammer(0)
	frozen := time.NewTimer(2 * time.Minute)
	defer frozen.Stop()
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for caught := false; !caught; {
		<-pause.C
		s.Nodes[0].Stop()
		if caught = s.stays(assigning); caught {
			break
		}
		s.Nodes[0].Cont()
		select {
		case <-frozen.C:
			t.Fatal("the node was never caught in a round; this test shows nothing")
		default:
		}
	}
	end()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for {
		r, a, err := s.As("tracy", 1).GetWork(ctx, "verify", 1)
		if err != nil {
			t.Fatalf("nobody is served while a node is frozen in its round, after %v: %v", time.Since(began), err)
		}
		if a.Status == 201 && r.State == assign.Assigned {
			break
		}
	}
	t.Logf("served %v after the freeze", time.Since(began))
	s.Nodes[0].Cont()
	e2e.Await(t, "the node is ready again", 30*time.Second, func() bool { return s.Nodes[0].Ready() == 200 })
	if _, a, err := s.As("oliver", 0).GetWork(t.Context(), "verify", 1, "Prefer", "wait=60"); err != nil || a.Status != 201 {
		t.Errorf("the thawed node: %d %s, %v", a.Status, a.Body, err)
	}
	s.NoDuplicates()
}

// stays reports whether something is true for half a second, in which the server carries out whatever a frozen node had
// sent.
func (s *site) stays(sql string) bool {
	s.T.Helper()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		if !column[bool](s, sql)[0] {
			return false
		}
		<-tick.C
	}
	return true
}

// hammer has eight people get work from a node continually, until the returned function is called.
func (s *site) hammer(node int) (end func()) {
	ctx, cancel := context.WithCancel(s.T.Context())
	var clicking sync.WaitGroup
	for i := range 8 {
		clicking.Go(func() {
			for ctx.Err() == nil {
				_, _, _ = s.As(fmt.Sprint("user-", i), node).GetWork(ctx, "verify", 5)
			}
		})
	}
	end = sync.OnceFunc(func() {
		cancel()
		clicking.Wait()
	})
	s.T.Cleanup(end)
	return end
}
