package story

import (
	"context"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
)

// Tracy clicks on one node, and learns the result on another, and on one that does not listen: by polling, by held
// answers, and by push.
func TestStatusOnEveryNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "")
	s.Nodes = append(s.Nodes, cluster.Start(t, 1, cluster.Options{DatabaseURL: s.URL, Args: []string{"--no-listen"}})...)
	query, open := s.Gated(1, 100)
	s.Task("verify", query)
	socket := s.Dial("tracy", 1)
	s.Click("oliver", 0, 2)
	s.QueryRuns()
	r := s.Click("tracy", 0, 3)
	held := make(chan heldAnswer, 4)
	tags := map[int]string{}
	for node := range s.Nodes {
		tags[node] = s.pending("tracy", node, r.ID)
		go s.hold(held, "tracy", node, r.ID)
	}
	go s.hold(held, "tracy", 1, r.ID, "If-None-Match", tags[1]) // until the request has changed
	for node, n := range []float64{1, 2, 1} {
		e2e.Await(t, "the node holds its answers", e2e.Soon, func() bool { return s.Figure(node, `getwork_calls_in_progress{gate="held"}`) == n })
	}
	still := s.Standstill()
	open()
	told := s.Pushed(socket, 1, r, e2e.Soon)
	if late := time.Since(*told.CompletedAt) - still(); late > e2e.ModeNow.Late() {
		t.Errorf("pushed %v after the round", late)
	}
	if len(told.Work) != 3 || told.Work[0].Item != "3" {
		t.Errorf("pushed %+v", told)
	}
	for range len(s.Nodes) + 1 {
		h := <-held
		if h.err != nil || h.answer.Status != 200 || len(h.request.Work) != 3 || h.answer.Header.Get("Preference-Applied") != "wait=50" {
			t.Fatalf("node %d answered %d %s, %v", h.node, h.answer.Status, h.answer.Body, h.err)
		}
		late, most := h.at.Sub(*h.request.CompletedAt)-h.still, e2e.ModeNow.Late()
		if h.node == 2 {
			most = e2e.Polling.Late() // it looks every second
		}
		t.Logf("node %d answered %v after the round", h.node, late)
		if late > most {
			t.Errorf("node %d answered %v after the round", h.node, late)
		}
		_, a, err := s.As("tracy", h.node).Request(t.Context(), r.ID, "If-None-Match", h.answer.Header.Get("ETag"))
		if err != nil || a.Status != 304 || a.Header.Get("Retry-After") != "" || tags[h.node] == a.Header.Get("ETag") {
			t.Errorf("node %d asked again: %d, %v", h.node, a.Status, err)
		}
	}
	if _, a, err := s.As("eve", 1).Request(t.Context(), r.ID); err != nil || a.Status != 404 {
		t.Errorf("somebody else's request: %d, %v", a.Status, err)
	}
	if states := s.States(); states != "finished" {
		t.Errorf("runs: %s", states)
	}
	s.NoDuplicates()
}

// pending reads a waiting request from a node, and again with its tag, which it returns.
func (s *site) pending(user string, node int, id int64) (tag string) {
	s.T.Helper()
	r, a, err := s.As(user, node).Request(s.T.Context(), id)
	tag = a.Header.Get("ETag")
	if err != nil || a.Status != 200 || r.State != assign.Pending || r.ID != id || a.Header.Get("Retry-After") != "5" || tag == "" {
		s.T.Fatalf("node %d: %d %s, %v", node, a.Status, a.Body, err)
	}
	_, a, err = s.As(user, node).Request(s.T.Context(), id, "If-None-Match", tag)
	if err != nil || a.Status != 304 || a.Header.Get("Retry-After") != "5" || len(a.Body) > 0 {
		s.T.Fatalf("node %d asked with the tag: %d %s, %v", node, a.Status, a.Body, err)
	}
	return tag
}

type heldAnswer struct {
	node    int
	request assign.Request
	answer  cluster.Answer
	at      time.Time
	still   time.Duration // how long the machine stood still meanwhile
	err     error
}

// hold reads a request with Prefer: wait.
func (s *site) hold(held chan<- heldAnswer, user string, node int, id int64, header ...string) {
	ctx, cancel := context.WithTimeout(s.T.Context(), time.Minute)
	defer cancel()
	still := s.Standstill()
	r, a, err := s.As(user, node).Request(ctx, id, append(header, "Prefer", "wait=50")...)
	held <- heldAnswer{node, r, a, time.Now(), still(), err}
}

// A click with Prefer: wait is answered after its round, with 201.
func TestClickThatWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.Task("verify", e2e.Heavy(1, 10))
	r, a, err := s.As("oliver", 0).GetWork(t.Context(), "verify", 2, "Prefer", "wait=60")
	if err != nil || a.Status != 201 || len(r.Work) != 2 || a.Took < time.Second {
		t.Errorf("%d after %v: %s, %v", a.Status, a.Took, a.Body, err)
	}
	still := s.Standstill()
	r, a, err = s.As("tracy", 0).GetWork(t.Context(), "verify", 2, "Prefer", "wait=0")
	if err != nil || a.Status != 202 || r.State != assign.Pending || a.Header.Get("Retry-After") != "5" || a.Took-still() > time.Second {
		t.Errorf("%d after %v: %s, %v", a.Status, a.Took, a.Body, err)
	}
	if want := "/api/v1/requests/"; len(a.Header.Get("Location")) <= len(want) || a.Header.Get("Location")[:len(want)] != want {
		t.Errorf("Location %q", a.Header.Get("Location"))
	}
	s.Served("tracy", 0, r.ID, 20*time.Second)
}
