package fault

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
)

// runner returns the index in s.nodes of the node that executes the current run.
func (s *site) runner() int {
	s.T.Helper()
	var node string
	e2e.Await(s.T, "a run begins", 30*time.Second, func() bool {
		running := column[string](s, `select node from getwork.run where state = 'running'`)
		if len(running) > 0 {
			node = running[0]
		}
		return len(running) > 0
	})
	for i := range s.Nodes {
		socket, _, err := s.As("mary", i).Dial(s.T.Context())
		if err != nil {
			s.T.Fatal(err)
		}
		name := socket.Hello.Node
		socket.Close()
		if name == node {
			return i
		}
	}
	s.T.Fatalf("node %s runs the query, but is not one of ours", node)
	return 0
}

// takeOver is the longest time from the death of the node that runs a query to the beginning of the next run. Tests
// allow twice as long.
const takeOver = 3 * time.Second

// takenOver waits until the second run begins, and checks that it did so in time after the first one's end.
func (s *site) takenOver(ended time.Time, still func() time.Duration) {
	s.T.Helper()
	s.Await("another run begins", 60*time.Second, `select count(*) > 1 from getwork.run`)
	took := column[time.Time](s, `select started_at from getwork.run order by id`)[1].Sub(ended)
	s.T.Logf("taken over after %v; the machine stood still for %v", took, still())
	if took-still() > 2*takeOver {
		s.T.Errorf("taken over after %v", took)
	}
}

// The node that runs the query for all is killed with -9, and another one serves everybody.
func TestHolderKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, "")
	query, open := s.Gated(1, 100)
	s.Task("verify", query)
	stop := s.Sample()
	requests := []assign.Request{s.Click("oliver", 0, 2)}
	s.QueryRuns()
	dead := s.runner()
	requests = append(requests, s.Click("tracy", (dead+1)%3, 3), s.Click("peter", dead, 1))
	socket := s.Dial("tracy", (dead+2)%3)

	still := s.Standstill()
	s.Nodes[dead].Kill()
	s.takenOver(time.Now(), still)
	s.Sampled(2)
	open()
	for _, r := range requests {
		s.Served(r.User, (dead+1)%3, r.ID, e2e.Soon)
	}
	s.Pushed(socket, (dead+2)%3, requests[1], e2e.Soon)
	if executions, atOnce := stop(); executions != 2 || atOnce != 1 {
		t.Errorf("%d executions, %d at once; want two, one after another", executions, atOnce)
	}
	if states := s.States(); states != "lost finished" {
		t.Errorf("runs: %s", states)
	}
	s.noDuplicates()
}

// Every node is killed while people wait; the next that starts serves them.
func TestAllKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "")
	query, open := s.Gated(1, 100)
	s.Task("verify", query)
	requests := []assign.Request{s.Click("oliver", 0, 2)}
	s.QueryRuns()
	requests = append(requests, s.Click("tracy", 1, 3))
	for _, node := range s.Nodes {
		node.Kill()
	}
	s.Nodes[1].Restart()
	s.takenOver(time.Now(), s.Standstill())
	open()
	for _, r := range requests {
		s.Served(r.User, 1, r.ID, e2e.Soon)
	}
	if states := s.States(); states != "lost finished" {
		t.Errorf("runs: %s", states)
	}
	s.noDuplicates()
}
