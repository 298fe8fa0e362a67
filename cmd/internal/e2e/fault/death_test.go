package fault

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
	"getwork/ws"
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
	s.NoDuplicates()
}

// The same without LISTEN, and the remaining node has never seen a waiting user.
func TestHolderKilledUnheard(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	s := newSite(t, 2, "", "--no-listen")
	query, open := s.Gated(1, 100)
	s.Task("verify", query)
	r := s.Click("oliver", 0, 2)
	s.QueryRuns()
	still := s.Standstill()
	s.Nodes[0].Kill()
	s.takenOver(time.Now(), still)
	open()
	s.Served("oliver", 1, r.ID, e2e.Soon)
	if states := s.States(); states != "lost finished" {
		t.Errorf("runs: %s", states)
	}
	// It is counted after the round's commit, which the user may learn first.
	e2e.Await(t, "the metric says that one request was rescued", e2e.Soon, func() bool { return s.Figure(1, "getwork_requests_rescued_total") == 1 })
	s.NoDuplicates()
}

// A node is told to end in the middle of its run. It gives the run up, sends its sockets elsewhere and exits with 0,
// and another node serves.
func TestTerminatedInARound(t *testing.T) {
	t.Parallel()
	const drain = 20 * time.Second // the sockets are sent away in a fifth of it
	s := newSite(t, 2, "", "--drain-timeout", drain.String())
	query, open := s.Gated(1, 100)
	s.Task("verify", query)
	stop := s.Sample()
	r := s.Click("oliver", 0, 2)
	s.QueryRuns()
	ending := s.runner()
	sockets := []*cluster.Socket{s.Dial("oliver", ending), s.Dial("tracy", ending)}
	held := make(chan cluster.Answer, 1)
	go func() {
		_, a, _ := s.As("peter", ending).GetWork(t.Context(), "verify", 1, "Prefer", "wait=60")
		held <- a
	}()
	s.Await("peter's click", e2e.Soon, `select count(*) > 0 from getwork.work_requested where user_name = 'peter'`)

	began := time.Now()
	exit := make(chan error, 1)
	go func() { exit <- s.Nodes[ending].Terminate() }()
	for _, socket := range sockets { // each must be read, or its close is not answered
		s.Hear(socket, "draining", drain, func(e cluster.Event) bool { return e.Node != nil && e.Node.State == assign.Draining })
		_, err := socket.Until(t.Context(), func(cluster.Event) bool { return false })
		if ws.CloseStatus(err) != ws.GoingAway {
			t.Errorf("the socket ended with %v; want 1001", err)
		}
	}
	if a := <-held; a.Status != 202 || time.Since(began) > drain {
		t.Errorf("the held answer: %d %s after %v", a.Status, a.Body, time.Since(began))
	}
	err := <-exit
	t.Logf("ended after %v", time.Since(began))
	if cluster.Exit(err) != 0 || time.Since(began) > drain {
		t.Errorf("exit status %d after %v: %v", cluster.Exit(err), time.Since(began), err)
	}
	s.Sampled(2)
	open()
	s.Served("oliver", 1-ending, r.ID, e2e.Soon)
	t.Logf("served %v after the signal", time.Since(began))
	if executions, atOnce := stop(); executions != 2 || atOnce != 1 {
		t.Errorf("%d executions, %d at once; want two, one after another", executions, atOnce)
	}
	if states := s.States(); states != "cancelled finished" {
		t.Errorf("runs: %s", states)
	}
	s.NoDuplicates()
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
	s.NoDuplicates()
}

// A node without work to do ends at once.
func TestTerminatedIdle(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	began, still := time.Now(), s.Standstill()
	if err := s.Nodes[0].Terminate(); err != nil || time.Since(began)-still() > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
