package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/proxy"
	"getwork/schema/schematest"
	"getwork/ws"
)

// A node that is told to end first turns /readyz to 503. Until the load balancer has heard that twice, the node accepts
// and serves new connections, and kept ones end with their next answer. A node that nobody watches does not wait.
func TestDrainIsNoticed(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "", "--drain-timeout", "100s") // of which 20 s are for load balancers to notice
	s.shelf(100, 10)
	node := s.Nodes[0]
	for range 2 {
		if status := s.Ready(0); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	kept := s.crowd(1, 0)[0]
	if a, err := kept.click(callBound, 1); err != nil || a.Status != 201 || a.Header.Get("Connection") != "" {
		t.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	exit := make(chan error, 1)
	go func() { exit <- node.Terminate() }()
	e2e.Await(t, "the node drains", callBound, func() bool { return strings.Contains(node.Output(), "shutting down") })
	a, err := kept.click(callBound, 1)
	if err != nil || a.Status != 201 {
		t.Fatalf("on a kept connection: %d %s, %v", a.Status, a.Body, err)
	}
	if !strings.Contains(string(a.Body), `"assigned"`) {
		t.Errorf("on a kept connection: %s", a.Body)
	}
	if _, err := kept.in.ReadByte(); err == nil || isLate(err) {
		t.Errorf("the connection is kept: %v", err)
	}
	if status := s.Said(node); status != http.StatusServiceUnavailable {
		t.Errorf("ready: %d", status)
	}
	if _, a, err := s.As("tracy", 0).GetWork(t.Context(), "verify", 1); err != nil || a.Status != 201 {
		t.Errorf("a new connection from a load balancer that does not know yet: %d %s, %v", a.Status, a.Body, err)
	}
	for range 2 { // there may be several load balancers, and each may ask more than once
		if status := s.Said(node); status != http.StatusServiceUnavailable {
			t.Errorf("ready: %d", status)
		}
	}
	if _, a, err := s.As("peter", 0).GetWork(t.Context(), "verify", 1); err != nil || a.Status != 201 {
		t.Errorf("a new connection, while others may not know yet: %d %s, %v", a.Status, a.Body, err)
	}
	if err := <-exit; err != nil {
		t.Error(err)
	}
}

// Three nodes are restarted one after another under load. Clients that follow the contract, and try again elsewhere
// after a 503 or a broken connection, see no error. Nothing is lost or done twice; live channels are sent away spread
// over time; and each node ends with 0 in time.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const users, sockets, drain = 30, 60, 30 * time.Second
	s := newSite(t, 3, "", "--drain-timeout", drain.String())
	err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "verify", "query": e2e.Heavy(0.3, 200_000), "fresh_for": "1s", "max_candidates": 2000})
	if err != nil {
		t.Fatal(err)
	}
	l := &rolling{site: s, over: make(chan struct{})}
	var g errgroup.Group
	for i := range users {
		g.Go(func() error { return l.work(fmt.Sprintf("user-%d", i), i) })
	}
	for i := range sockets {
		g.Go(func() error { return l.follow(fmt.Sprintf("user-%d", i%users), i) })
	}
	for i, node := range s.Nodes {
		l.progress(40)
		e2e.Await(t, "sockets on the node", callBound, func() bool { return l.open[i].Load() >= sockets/6 })
		began := time.Now()
		if err := node.Terminate(); err != nil || time.Since(began) > drain {
			t.Errorf("node %d ended after %v: %v", i, time.Since(began), err)
		}
		e2e.Await(t, "all clients know that they were sent away", callBound, func() bool { return l.open[i].Load() == 0 })
		times := l.partings(i)
		if len(times) < sockets/6 {
			t.Fatalf("%d sockets were sent away from node %d", len(times), i)
		}
		spread := times[len(times)-1].Sub(times[0])
		t.Logf("node %d ended after %v, with status 0; %d sockets sent away over %v", i, time.Since(began), len(times), spread)
		if spread < drain/5/4 || spread > drain/2 {
			t.Errorf("the sockets of node %d were sent away over %v", i, spread)
		}
		node.Restart()
	}
	l.progress(40)
	close(l.over)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d clicks, %d calls tried again", l.clicks.Load(), l.again.Load())
	if n := column[int64](s, `select count(*) from getwork.work_requested`)[0]; n != l.clicks.Load() {
		t.Errorf("%d requests for %d clicks", n, l.clicks.Load())
	}
	if n := column[int64](s, `select count(*) from getwork.work_requested where state <> 'assigned'`)[0]; n != 0 {
		t.Errorf("%d requests were not served", n)
	}
	if n := column[int64](s, `select count(*) from getwork.work where state <> 'completed'`)[0]; n != 0 {
		t.Errorf("%d pieces of work were not completed", n)
	}
}

// rolling is the load of a rolling restart.
type rolling struct {
	*site
	over          chan struct{}
	clicks, again atomic.Int64
	open          [3]atomic.Int64 // sockets of each node

	mu     sync.Mutex
	parted [3][]time.Time
}

func (l *rolling) ended() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// progress waits for that many more clicks.
func (l *rolling) progress(n int64) {
	l.T.Helper()
	until := l.clicks.Load() + n
	e2e.Await(l.T, "clicks go on", 2*time.Minute, func() bool { return l.clicks.Load() >= until })
}

// try makes a call on each node in turn until the answer is not "elsewhere" or "later".
func (l *rolling) try(user string, node int, call func(cluster.Client) (cluster.Answer, error)) (cluster.Answer, int, error) {
	deadline := time.Now().Add(time.Minute)
	for {
		a, err := call(l.Nodes[node].Client(user))
		switch {
		case err == nil && a.Status != 503 && a.Status != 429:
			return a, node, nil
		case err == nil && refusedFor(a) != nil:
			return a, node, refusedFor(a)
		case time.Now().After(deadline):
			return a, node, fmt.Errorf("no node answers %s: %d %s: %w", user, a.Status, a.Body, err)
		}
		l.again.Add(1)
		node = (node + 1) % len(l.Nodes)
		pauseFor(l.T.Context(), time.Duration(rand.IntN(100))*time.Millisecond)
	}
}

// pauseFor is how long a client waits before it tries again.
func pauseFor(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// work clicks, waits for the result, and completes the work, until over is closed.
func (l *rolling) work(user string, node int) error {
	for i := 0; !l.ended(); i++ {
		node = (node + 1) % len(l.Nodes)
		var r assign.Request
		key := fmt.Sprintf("%s %d", user, i)
		a, node, err := l.try(user, node, func(c cluster.Client) (a cluster.Answer, err error) {
			r, a, err = c.GetWork(l.T.Context(), "verify", 2, "Idempotency-Key", key, "Prefer", "wait=5")
			return a, err
		})
		if err != nil || a.Status > 202 {
			return fmt.Errorf("click %q: %d %s, %w", key, a.Status, a.Body, err)
		}
		l.clicks.Add(1)
		for began := time.Now(); r.State == assign.Pending; {
			a, node, err = l.try(user, node, func(c cluster.Client) (a cluster.Answer, err error) {
				now, a, err := c.Request(l.T.Context(), r.ID, "Prefer", "wait=5")
				if err == nil && a.Status == 200 {
					r = now
				}
				return a, err
			})
			if err != nil || a.Status != 200 || time.Since(began) > time.Minute {
				return fmt.Errorf("request %d of %s: %d %s, %w", r.ID, user, a.Status, a.Body, err)
			}
		}
		for _, w := range r.Work {
			a, _, err := l.try(user, node, func(c cluster.Client) (cluster.Answer, error) {
				_, a, err := c.Dispose(l.T.Context(), w.ID, "complete", "")
				return a, err
			})
			if err != nil || a.Status != 200 {
				return fmt.Errorf("completing %d of %s: %d %s, %w", w.ID, user, a.Status, a.Body, err)
			}
		}
	}
	return nil
}

// follow keeps a live channel open, on any node that accepts it, until over is closed.
func (l *rolling) follow(user string, node int) error {
	node %= len(l.Nodes)
	for refused := 0; !l.ended(); {
		socket, _, err := l.As(user, node).Dial(l.T.Context())
		if err != nil {
			if refused++; refused > 200 {
				return fmt.Errorf("no node takes %s's live channel: %w", user, err)
			}
			node = (node + 1) % len(l.Nodes)
			pauseFor(l.T.Context(), time.Duration(rand.IntN(500))*time.Millisecond)
			continue
		}
		refused = 0
		l.open[node].Add(1)
		err = l.listen(socket, node)
		l.open[node].Add(-1)
		socket.Close()
		if err != nil {
			return fmt.Errorf("%s's live channel at node %d: %w", user, node, err)
		}
	}
	return nil
}

// listen reads a live channel until it is sent away, or over is closed.
func (l *rolling) listen(socket *cluster.Socket, node int) error {
	ctx, cancel := context.WithCancel(l.T.Context())
	defer cancel()
	go func() {
		select {
		case <-l.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	drained := false
	for {
		e, err := socket.Next(ctx)
		switch {
		case err == nil:
			drained = drained || nodeIs(assign.Draining)(e)
			continue
		case ctx.Err() != nil:
			return nil
		case ws.CloseStatus(err) != ws.GoingAway || !drained:
			return fmt.Errorf("it ended; told before: %v: %w", drained, err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.parted[node] = append(l.parted[node], time.Now())
		return nil
	}
}

// partings are the times at which live channels were sent away from a node.
func (l *rolling) partings(node int) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(slices.Values(l.parted[node]), time.Time.Compare)
}

// A database that stands still keeps no node from ending in time, with 0; it rolls back open transactions.
func TestDrainBesideAFrozenDatabase(t *testing.T) {
	schematest.Thorough(t)
	if e2e.ModeNow == e2e.Pooled {
		t.Skip("the pooler stands between")
	}
	t.Parallel()
	const drain = 4 * time.Second
	url := schematest.URL(t)
	target, err := proxy.Target(url)
	if err != nil {
		t.Fatal(err)
	}
	way, err := proxy.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(way.Close)
	through, err := way.URL(url)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, 1, through, "--drain-timeout", drain.String())
	s.Task("verify", e2e.Heavy(60, 10))
	s.Click("oliver", 0, 1)
	s.QueryRuns()
	way.Freeze(proxy.Both)
	began, still := time.Now(), s.Standstill()
	if err := s.Nodes[0].Terminate(); err != nil || time.Since(began)-still() > drain+4*time.Second {
		t.Errorf("ended after %v: %v", time.Since(began), err)
	}
	way.Thaw()
}

// A count of the past outlives its caller, but not the node.
func TestDrainWhileItCounts(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	const drain = 4 * time.Second
	s := newSite(t, 1, "", "--drain-timeout", drain.String())
	s.Task("verify", e2e.Heavy(0, 10))
	tx, err := s.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	asking, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := s.As("mary", 0).Do(asking, http.MethodGet, "/api/v1/history", nil, "X-Getwork-Role", "observer")
		left <- err
	}()
	e2e.Await(t, "it counts", e2e.Soon, func() bool {
		return column[bool](s, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%closed_at%')`)[0]
	})
	leave()
	if err := <-left; err == nil {
		t.Error("it was answered beside a locked table")
	}
	began, still := time.Now(), s.Standstill()
	if err := s.Nodes[0].Terminate(); err != nil || time.Since(began)-still() > 10*time.Second {
		t.Errorf("ended after %v: %v", time.Since(began), err)
	}
}
