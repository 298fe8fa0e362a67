package fault

import (
	"net/url"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/proxy"
	"getwork/schema/schematest"
)

// silenceBound is how long a node may take to notice that it hears nothing any more.
const silenceBound = 30 * time.Second

// The path of the notifications freezes: the connections stay open, but nothing arrives. The node notices, says so, and
// reads the tables itself, so that events are pushed a little later; after the thaw they are pushed at once again.
func TestListenerFrozen(t *testing.T) {
	t.Parallel()
	server := schematest.OwnServer(t, nil)
	at, err := url.Parse(server.URL("getwork"))
	if err != nil {
		t.Fatal(err)
	}
	way, err := proxy.Start(at.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(way.Close)
	listen, err := way.URL(server.URL("getwork"))
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, 2, server.URL("getwork"), "--listen-database-url", listen)
	s.Task("verify", e2e.Heavy(0, 100))
	socket := s.Dial("oliver", 0)

	way.Freeze(proxy.Both)
	frozen, still := time.Now(), s.Standstill()
	first := s.Click("oliver", 1, 2) // on the other node, so that this one can't know
	lagged, given := false, false    // a node that finds the request itself, because the other is slow, pushes before it notices
	s.Hear(socket, "push on the node that hears nothing", 2*silenceBound, func(e cluster.Event) bool {
		if nodeIs(assign.Lagging)(e) {
			lagged = true
			t.Logf("noticed %v after the freeze", time.Since(frozen))
			if took := time.Since(frozen) - still(); took > silenceBound {
				t.Errorf("noticed %v after the freeze; want it within %v", took, silenceBound)
			}
		}
		given = given || got(first)(e)
		return lagged && given
	})
	second := s.Click("oliver", 1, 2)
	clicked := time.Now()
	s.Hear(socket, "push while it lags", 20*time.Second, got(second))
	t.Logf("while it lags, pushed %v after the click", time.Since(clicked))
	if up := s.Figure(0, "getwork_listener_up"); up != 0 {
		t.Errorf("getwork_listener_up is %v while nothing is heard", up)
	}

	way.Thaw()
	thawed := time.Now()
	s.Hear(socket, "live", 2*silenceBound, nodeIs(assign.Live))
	t.Logf("live again %v after the thaw", time.Since(thawed))
	still = s.Standstill()
	third := s.Click("oliver", 1, 2)
	e := s.Hear(socket, "push after the thaw", 20*time.Second, e2e.Ended(third.ID))
	if late := time.Since(*e.Request.CompletedAt) - still(); late > time.Second {
		t.Errorf("pushed %v after the round", late)
	}
	if n := s.Figure(0, "getwork_listener_reconnects_total"); n != 1 {
		t.Errorf("getwork_listener_reconnects_total is %v, want 1", n)
	}
}

// got accepts the event with a request's result: its end, or a snapshot with its work.
func got(r assign.Request) func(cluster.Event) bool {
	return func(e cluster.Event) bool {
		if e.Snapshot == nil {
			return e2e.Ended(r.ID)(e)
		}
		for _, w := range e.Snapshot.Work {
			if !w.AssignedAt.Before(r.CreatedAt) {
				return true
			}
		}
		return false
	}
}
