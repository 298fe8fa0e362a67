package fault

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/proxy"
	"getwork/schema/schematest"
)

// A node that gets SIGTERM first turns /readyz to 503. Until the load balancer has heard that twice, the node accepts
// and serves new connections, and kept ones end with their next answer. A node that nobody watches does not wait.
func TestDrainIsNoticed(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "", "--drain-timeout", "100s") // of which 20 s are for load balancers to notice
	s.shelf(100, 10)
	node := s.Nodes[0]
	for range 2 {
		if status := s.ready(0); status != http.StatusOK {
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
	if status := s.said(node); status != http.StatusServiceUnavailable {
		t.Errorf("ready: %d", status)
	}
	if _, a, err := s.As("tracy", 0).GetWork(t.Context(), "verify", 1); err != nil || a.Status != 201 {
		t.Errorf("a new connection from a load balancer that does not know yet: %d %s, %v", a.Status, a.Body, err)
	}
	for range 2 { // there may be several load balancers, and each may ask more than once
		if status := s.said(node); status != http.StatusServiceUnavailable {
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

// A node that drains refuses new connections, answers on open ones for half of --drain-timeout, and closes those that are idle only
// then. It ends at once if none is open.
func TestDrainLeavesOpenConnections(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	const drain = 16 * time.Second
	s := newSite(t, 1, "", "--drain-timeout", drain.String())
	s.shelf(100, 10)
	node := s.Nodes[0]
	kept := s.crowd(2, 0) // one calls again, and one never does
	for _, c := range kept {
		if a, err := c.click(callBound, 1); err != nil || a.Status != 201 {
			t.Fatalf("%d %s, %v", a.Status, a.Body, err)
		}
	}
	began, exit := time.Now(), make(chan error, 1)
	go func() { exit <- node.Terminate() }()
	e2e.Await(t, "new connections are refused", callBound, func() bool { return node.Ready() == 0 })
	if a, err := kept[0].click(callBound, 1); err != nil || a.Status != 201 {
		t.Errorf("on an open connection: %d %s, %v", a.Status, a.Body, err)
	}
	if _, err := kept[0].in.ReadByte(); err == nil || isLate(err) {
		t.Errorf("the connection is kept after its answer: %v", err)
	}
	_, err := kept[1].in.ReadByte()
	if took := time.Since(began); err == nil || isLate(err) || took < drain/2 {
		t.Errorf("the idle connection ended after %v, %v", took, err)
	}
	if err := <-exit; err != nil {
		t.Error(err)
	}
	node.Restart()
	began, still := time.Now(), s.Standstill()
	if err := node.Terminate(); err != nil || time.Since(began)-still() > drain/2-time.Second {
		t.Errorf("with no connection it ended after %v: %v", time.Since(began), err)
	}
}

// pauseFor is how long a client waits before it tries again.
func pauseFor(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
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
