package fault

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// callBound is how long an answer may take in any case, with a margin because many tests run at once.
const callBound = 25 * time.Second

// crowd opens a connection for each of n users at a node.
func (s *site) crowd(n, node int) []*caller {
	s.T.Helper()
	callers := make([]*caller, n)
	var g errgroup.Group
	g.SetLimit(64)
	for i := range callers {
		g.Go(func() (err error) {
			callers[i], err = newCaller(s.T.Context(), s.Nodes[node], fmt.Sprintf("user-%05d", i))
			return err
		})
	}
	s.T.Cleanup(func() {
		for _, c := range callers {
			if c != nil {
				_ = c.conn.Close()
			}
		}
	})
	if err := g.Wait(); err != nil {
		s.T.Fatal(err)
	}
	return callers
}

// More people click at once than a node accepts, while the database stands still: those beyond the limit are refused at
// once, everybody gets an answer, and when the database goes on all others are served. All clicks must be there before the first
// of them gives up, so no other test of the package runs beside it, and the node accepts fewer than usual.
func TestMoreClicksThanServed(t *testing.T) {
	schematest.Thorough(t)
	const most, extra = 400, 200
	s := newSite(t, 1, "", "--max-calls", fmt.Sprint(most))
	s.shelf(10_000, 10)
	callers := s.crowd(openFiles(t, most+extra), 0)
	before := resident(t, s.Nodes[0])
	unlock := s.Lock(`lock table getwork.work_requested in access exclusive mode`)

	var refused atomic.Int64
	again := make(chan *caller, len(callers))
	answered := make(chan error, len(callers))
	for _, c := range callers {
		go func() {
			a, err := c.click(callBound, 1)
			switch {
			case err != nil || a.Status < 300:
				answered <- err
				return
			case refusedFor(a) != nil:
				err = refusedFor(a)
			case a.Status == 429:
				refused.Add(1)
			}
			again <- c
			answered <- err
		}()
	}
	e2e.Await(t, "all clicks beyond the limit are refused", callBound, func() bool { return int(refused.Load()) >= len(callers)-most })
	grown := resident(t, s.Nodes[0]) - before
	t.Logf("the node takes %d MiB more", grown)
	if grown > 200 {
		t.Errorf("the node takes %d MiB more", grown)
	}
	if status := s.ready(0); status != http.StatusOK {
		t.Errorf("a busy node is not ready: %d", status)
	}
	unlock()
	for range callers {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	close(again)
	t.Logf("%d clicks: %d refused at once, %d to be sent again", len(callers), refused.Load(), len(again))
	if n := int(refused.Load()); n > len(callers)-most+50 {
		t.Errorf("%d of %d refused, which is more than necessary", n, len(callers))
	}
	for c := range again {
		if a, err := c.click(callBound, 1); err != nil || a.Status > 202 {
			t.Fatalf("once more: %d %s, %v", a.Status, a.Body, err)
		}
	}
	s.Await("everybody has an item", callBound, `select count(distinct user_name) = $1 from getwork.work where state = 'held' and user_name like 'user-%'`, len(callers))
	s.noDuplicates()
}

// A table is locked for longer than a call waits: calls that need it are answered 503 in time, and others are served.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.shelf(100, 10)
	callers := s.crowd(20, 0)
	s.Lock(`lock table getwork.work_requested in access exclusive mode`)
	began := time.Now()
	var g errgroup.Group
	for i, c := range callers {
		g.Go(func() error {
			call := func() (cluster.Answer, error) { return c.click(callBound, 1) }
			if i%2 == 0 {
				call = func() (cluster.Answer, error) { return c.do(callBound, "GET", "/api/v1/pipeline", "") }
			}
			a, err := call()
			if err == nil {
				err = refusedFor(a)
			}
			if err == nil && a.Status != 503 {
				err = fmt.Errorf("%d %s", a.Status, a.Body)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("all were told after %v", time.Since(began))
	e2e.Await(t, "the log has advice", e2e.Soon, func() bool { return strings.Contains(s.Nodes[0].Output(), "pg_locks") })
	if n := strings.Count(s.Nodes[0].Output(), "request failed"); n == 0 || n > 5 {
		t.Errorf("the log complains %d times; want a few", n)
	}
}

// Every connection for calls waits for a lock: a run's round is still served and pushed, the listener's echo goes on,
// and the node is ready. One user's calls take no connections from others'.
func TestCallsStarveNothingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	query, open := s.Gated(1, 100)
	s.Task("verify", query)
	open()
	w := s.held("mary", 0)
	open = s.Shut()
	socket := s.Dial("oliver", 0)
	unlock := s.Lock(`select from getwork.work where id = $1 for update`, w.ID)
	const stuck = 12
	callers := s.crowd(stuck, 0)
	var g errgroup.Group
	for _, c := range callers {
		c.user = "mary"
	}
	r := s.Click("oliver", 0, 2)
	s.QueryRuns()
	over := make(chan struct{})
	for _, c := range callers {
		g.Go(func() error {
			for { // a call does not wait for a lock for ever, so refused users come again
				_, err := c.do(callBound, "POST", fmt.Sprintf("/api/v1/work/%d/disposition", w.ID), `{"outcome":"complete"}`)
				select {
				case <-over:
					return err
				default:
					if err != nil {
						return err
					}
				}
			}
		})
	}
	taken := func() bool {
		return column[int64](s, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)[0] >= 8
	}
	e2e.Await(t, "all connections for calls are taken", e2e.Soon, taken)
	open()
	s.Hear(socket, "push of a round", e2e.Soon, e2e.Ended(r.ID))
	for range 3 {
		began, still := time.Now(), s.Standstill()
		if s.ready(0) != http.StatusOK || time.Since(began)-still() > 2*time.Second {
			t.Errorf("not ready, after %v", time.Since(began))
		}
	}
	e2e.Await(t, "all connections for calls are still taken", e2e.Soon, taken)
	close(over)
	unlock()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if log := s.Nodes[0].Output(); strings.Contains(log, "echo") || strings.Contains(log, "listener is down") {
		t.Error("the listener had trouble")
	}
}

// held gives a user an item, and returns the work.
func (s *site) held(user string, node int) assign.Work {
	s.T.Helper()
	r, a, err := s.As(user, node).GetWork(s.T.Context(), "verify", 1, "Prefer", "wait=60")
	if err != nil || len(r.Work) != 1 {
		s.T.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	return r.Work[0]
}

// The database accepts no more connections: calls are answered so, the log says what to do, and everything goes on by
// itself when connections are free again.
func TestNoConnectionsLeft(t *testing.T) {
	t.Parallel()
	server := schematest.OwnServer(t, map[string]string{"max_connections": "25"})
	s := newSite(t, 1, server.URL("getwork"))
	s.Task("verify", e2e.Heavy(1, 100))
	r := s.Click("oliver", 0, 2)
	s.QueryRuns()
	db := s.DB
	taken := takeConnections(t, server.URL("getwork"))
	s.DB = nil // its connections are gone, too
	const cut = `select count(pg_terminate_backend(pid)) from pg_stat_activity where pid <> pg_backend_pid() and application_name like 'getwork%'`
	if _, err := taken.conns[0].Exec(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	taken.more()
	e2e.Await(t, "calls are refused", time.Minute, func() bool {
		a, err := s.As("tracy", 0).Do(t.Context(), "GET", "/api/v1/pipeline", nil)
		if err != nil {
			t.Fatal(err)
		}
		taken.more()
		return a.Status == 503 && refusedFor(a) == nil && strings.Contains(a.Problem.Detail, "connections")
	})
	e2e.Await(t, "advice", time.Minute, func() bool { return strings.Contains(s.Nodes[0].Output(), "raise it, run fewer nodes") })
	taken.close()
	s.DB = db
	s.DB.Reset()
	s.Served("oliver", 0, r.ID, time.Minute)
	e2e.Await(t, "ready again", time.Minute, func() bool { return s.Nodes[0].Ready() == http.StatusOK })
	s.noDuplicates()
}

// connections are all connections that a server had left.
type connections struct {
	t     *testing.T
	url   string
	conns []*pgx.Conn
}

func takeConnections(t *testing.T, url string) *connections {
	c := &connections{t: t, url: url}
	t.Cleanup(c.close)
	c.more()
	if len(c.conns) == 0 {
		t.Fatal("no connection was left")
	}
	return c
}

// more takes connections that have become free.
func (c *connections) more() {
	for {
		conn, err := pgx.Connect(c.t.Context(), c.url)
		if err != nil {
			return
		}
		c.conns = append(c.conns, conn)
	}
}

func (c *connections) close() {
	for _, conn := range c.conns {
		_ = conn.Close(c.t.Context())
	}
	c.conns = nil
}
