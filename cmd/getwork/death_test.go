package main

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/ws"
)

// runner is the node that executes the present run, by its place in s.nodes.
func (s *site) runner() int {
	s.t.Helper()
	var node string
	await(s.t, "a run begins", 10*time.Second, func() bool {
		running := column[string](s, `select node from getwork.run where state = 'running'`)
		if len(running) > 0 {
			node = running[0]
		}
		return len(running) > 0
	})
	for i := range s.nodes {
		socket, _, err := s.as("mary", i).Dial(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		name := socket.Hello.Node
		socket.Close()
		if name == node {
			return i
		}
	}
	s.t.Fatalf("node %s runs the query, and is none of ours", node)
	return 0
}

// The node that runs the query for all is killed with -9: another one serves everybody.
func TestHolderKilled(t *testing.T) {
	t.Parallel()
	const query = 3 * time.Second
	s := newSite(t, 3, "")
	s.task("verify", heavy(query.Seconds(), 100))
	stop := s.sample()
	requests := []assign.Request{s.click("oliver", 0, 2)}
	s.queryRuns()
	dead := s.runner()
	requests = append(requests, s.click("tracy", (dead+1)%3, 3), s.click("peter", dead, 1))
	socket := s.dial("tracy", (dead+2)%3)

	s.nodes[dead].Kill()
	killed := time.Now()
	for _, r := range requests {
		s.served(r.User, (dead+1)%3, r.ID, 2*(query+3*time.Second))
	}
	took := time.Since(killed)
	t.Logf("served %v after the kill, with a query of %v", took, query)
	s.hear(socket, "push of the request", 5*time.Second, ended(requests[1].ID))
	if executions, atOnce := stop(); executions != 2 || atOnce != 1 {
		t.Errorf("%d executions, %d at once; want two, one after another", executions, atOnce)
	}
	if states := s.states(); states != "lost finished" {
		t.Errorf("runs: %s", states)
	}
	s.noDuplicates()
}

// A node is told to end in the middle of its run: it gives the run up, sends its sockets elsewhere and exits with 0,
// and another node serves.
func TestTerminatedInARound(t *testing.T) {
	t.Parallel()
	const query, drain = 3 * time.Second, 5 * time.Second
	s := newSite(t, 2, "", "--drain-timeout", drain.String())
	s.task("verify", heavy(query.Seconds(), 100))
	stop := s.sample()
	r := s.click("oliver", 0, 2)
	s.queryRuns()
	ending := s.runner()
	sockets := []*cluster.Socket{s.dial("oliver", ending), s.dial("tracy", ending)}
	held := make(chan cluster.Answer, 1)
	go func() {
		_, a, _ := s.as("peter", ending).GetWork(t.Context(), "verify", 1, "Prefer", "wait=60")
		held <- a
	}()
	s.await("peter's click", 10*time.Second, `select count(*) > 0 from getwork.work_requested where user_name = 'peter'`)

	began := time.Now()
	exit := make(chan error, 1)
	go func() { exit <- s.nodes[ending].Terminate() }()
	for _, socket := range sockets { // each must be read, or its close is not answered
		s.hear(socket, "draining", drain, func(e cluster.Event) bool { return e.Node != nil && e.Node.State == assign.Draining })
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
	s.served("oliver", 1-ending, r.ID, 2*(query+3*time.Second))
	t.Logf("served %v after the signal", time.Since(began))
	if executions, atOnce := stop(); executions != 2 || atOnce != 1 {
		t.Errorf("%d executions, %d at once; want two, one after another", executions, atOnce)
	}
	if states := s.states(); states != "cancelled finished" {
		t.Errorf("runs: %s", states)
	}
	s.noDuplicates()
}

// Every node is killed while people wait: the next that starts serves them.
func TestAllKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "")
	s.task("verify", heavy(2, 100))
	requests := []assign.Request{s.click("oliver", 0, 2)}
	s.queryRuns()
	requests = append(requests, s.click("tracy", 1, 3))
	for _, node := range s.nodes {
		node.Kill()
	}
	s.nodes[1].Restart()
	for _, r := range requests {
		s.served(r.User, 1, r.ID, 2*(2*time.Second+3*time.Second))
	}
	if states := s.states(); states != "lost finished" {
		t.Errorf("runs: %s", states)
	}
	s.noDuplicates()
}

// A node without work to do ends at once.
func TestTerminatedIdle(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	began := time.Now()
	if err := s.nodes[0].Terminate(); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
