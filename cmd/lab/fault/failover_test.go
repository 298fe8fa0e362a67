package fault

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/patroni"
	"getwork/schema/schematest"
)

// allFailovers, set by GETWORK_TEST_FAILOVER=all, tries every way of losing the primary with every kind of address.
var allFailovers = os.Getenv("GETWORK_TEST_FAILOVER") == "all"

// loss loses the primary in some way. It returns when the cluster has, or may have, another.
type loss func(ctx context.Context, database *patroni.Cluster)

// The primary changes under load, with synchronous replication: nothing that was answered with a 2xx is lost, all
// waiting users are served on the sockets that they had, and nodes answer 503 and Retry-After meanwhile.
func TestFailover(t *testing.T) {
	schematest.Thorough(t)
	if e2e.ModeNow == e2e.Pooled {
		t.Skip("PgBouncer names one host")
	}
	database := patroni.Start(t, patroni.Options{Synchronous: true})
	t.Run("commit given up", func(t *testing.T) { givenUp(t, database) })
	byProxy, byHosts := database.ProxyURL, database.HostsURL
	for _, c := range []struct {
		name   string
		url    func(string) string
		lose   loss
		always bool
	}{
		{"planned by hosts", byHosts, planned, true},
		{"host dies by proxy", byProxy, dies, true},
		{"planned by proxy", byProxy, planned, false},
		{"host dies by hosts", byHosts, dies, false},
		{"host freezes by proxy", byProxy, freezes, false},
		{"host freezes by hosts", byHosts, freezes, false},
	} {
		if !c.always && !allFailovers {
			continue
		}
		if !t.Run(c.name, func(t *testing.T) { failOver(t, database, c.url, c.lose) }) {
			return
		}
	}
}

// planned is a switch-over by an operator before maintenance.
func planned(ctx context.Context, database *patroni.Cluster) { database.Switchover(ctx) }

// dies is a power failure of the primary's host, whose power returns when another has taken over.
func dies(ctx context.Context, database *patroni.Cluster) {
	victim := database.Primary(ctx)
	victim.Kill()
	database.Primary(ctx)
	victim.Start()
}

// freezes stops the primary's host, which wakes up when another has taken over, and for a moment still believes that it
// is the primary.
func freezes(ctx context.Context, database *patroni.Cluster) {
	victim := database.Primary(ctx)
	victim.Freeze()
	defer victim.Thaw()
	database.Primary(ctx)
}

// bankOf starts nodes on a database of their own, with tasks of each kind.
func bankOf(t *testing.T, database *patroni.Cluster, url func(string) string) *site {
	t.Helper()
	name := fmt.Sprintf("bank_%d", time.Now().UnixNano())
	database.Create(name)
	s := newSite(t, 3, url(name))
	s.Create(map[string]any{"name": "verify", "query": e2e.Heavy(0.3, 20_000)})
	s.Create(map[string]any{"name": "quick", "query": e2e.Heavy(0.3, 20_000), "fresh_for": "3s"})
	for _, inbox := range []string{"desk", "void", "late"} {
		s.Create(map[string]any{"name": inbox, "query": nil})
	}
	return s
}

func failOver(t *testing.T, database *patroni.Cluster, url func(string) string, lose loss) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	database.AwaitWhole(ctx)
	s, l := bankOf(t, database, url), newLedger(t)
	l.why = sync.OnceFunc(func() { t.Log(database.State(context.WithoutCancel(ctx))) })
	waiting := s.waiting(l)
	finish := l.load(s)
	enough(t, l, 300)

	began := time.Now()
	lose(ctx, database)
	t.Logf("another primary after %v", time.Since(began))
	s.DB.Reset()
	s.lateWork(l, waiting) // the nodes have only just found the new primary
	enough(t, l, 300)
	finish()
	t.Logf("nothing was written for %v; answers: %v, the longest call took %v (%s)", l.outage(), l.statuses(), l.longest, l.whose)
	s.allReady()
	s.SendHome()
	s.Promises()
	if _, some := l.missing(s); len(some) > 0 {
		t.Errorf("answered, but not in the database: %v", some)
	}
}

func (s *site) allReady() {
	s.T.Helper()
	for _, node := range s.Nodes {
		e2e.Await(s.T, "ready again", time.Minute, func() bool { return node.Ready() == 200 })
	}
}

// enough waits until that many more calls were answered with a 2xx.
func enough(t *testing.T, l *ledger, n int) {
	t.Helper()
	count := func() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.wrote) }
	before := count()
	e2e.Await(t, "people get their work done", 2*time.Minute, func() bool { return count() >= before+n || t.Failed() })
}
