package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// Site is a database and the nodes that serve from it.
type Site struct {
	T     *testing.T
	URL   string
	DB    *pgxpool.Pool
	Nodes []*cluster.Node

	samples atomic.Int64 // how many executions were seen; see Sample
}

// NewSite starts n nodes on the database with that URL, or on one of the test's own if it is empty. It returns when the
// nodes serve and hear each other: a node is ready before it listens, and until it listens it reports late what others
// do.
func NewSite(t *testing.T, n int, url string, args ...string) *Site {
	t.Helper()
	if url == "" {
		url = schematest.URL(t)
	}
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s := &Site{T: t, URL: url, DB: db, Nodes: cluster.Start(t, n, ModeNow.options(t, url, args...))}
	if ModeNow != Polling && !slices.Contains(args, "--no-listen") {
		for node := range n {
			Await(t, "the node listens", 30*time.Second, func() bool { return s.Figure(node, "getwork_listener_up") == 1 })
		}
	}
	return s
}

// As returns a client for a user at the i-th node.
func (s *Site) As(user string, i int) cluster.Client { return s.Nodes[i].Client(user) }

// Marker is near the beginning of every heavy query, since the server shows only 1024 bytes of a statement.
const Marker = "/* heavy */"

// Heavy returns a ranking query that sleeps, and then returns the items 1 to n in that order.
func Heavy(seconds float64, n int) string {
	return fmt.Sprintf(Marker+` with nap as materialized (select pg_sleep(%g))
select i as item, i %% 7 as weight from nap cross join generate_series(1, %d) i order by i`, seconds, n)
}

// Gated returns a heavy query that does not end before the gate is opened; later ones wait, too, while it is shut. So
// the test may take its time. The gate is an advisory lock, not a row, so that a transaction of any isolation level
// sees it free.
func (s *Site) Gated(seconds float64, n int) (query string, open func()) {
	s.T.Helper()
	s.Exec(`
create function gate() returns void language plpgsql as $$
begin
  while not pg_try_advisory_xact_lock_shared(1717, 1) loop perform pg_sleep(0.02); end loop;
end $$`)
	return fmt.Sprintf(Marker+` with nap as materialized (select pg_sleep(%g), gate())
select i as item, i %% 7 as weight from nap cross join generate_series(1, %d) i order by i`, seconds, n), s.Shut()
}

// Shut shuts the gate; the returned function opens it.
func (s *Site) Shut() (open func()) {
	s.T.Helper()
	return s.Lock(`select pg_advisory_xact_lock(1717, 1)`)
}

// Task creates a task with that ranking query.
func (s *Site) Task(name, query string) {
	s.T.Helper()
	if err := s.As("mary", 0).CreateTask(s.T.Context(), map[string]any{"name": name, "query": query}); err != nil {
		s.T.Fatal(err)
	}
}

// Click asks for work and expects an answer that says to wait.
func (s *Site) Click(user string, node, count int) assign.Request {
	s.T.Helper()
	r, a, err := s.As(user, node).GetWork(s.T.Context(), "verify", count)
	if err != nil || a.Status != 202 {
		s.T.Fatalf("click of %s: %d %s %v", user, a.Status, a.Body, err)
	}
	return r
}

// Served waits until a request is assigned in full.
func (s *Site) Served(user string, node int, id int64, within time.Duration) assign.Request {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), timeout.Scale(within))
	defer cancel()
	r, err := s.As(user, node).Await(ctx, id)
	if err != nil || r.State != assign.Assigned {
		s.T.Fatalf("request %d of %s: %s, %v", id, user, r.State, err)
	}
	return r
}

// Dial opens a user's live channel, and closes it with the test.
func (s *Site) Dial(user string, node int) *cluster.Socket {
	s.T.Helper()
	socket, _, err := s.As(user, node).Dial(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(socket.Close)
	return socket
}

// Hear reads a live channel until wanted accepts a message.
func (s *Site) Hear(socket *cluster.Socket, what string, within time.Duration, wanted func(cluster.Event) bool) cluster.Event {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), timeout.Scale(within))
	defer cancel()
	e, err := socket.Until(ctx, wanted)
	if err != nil {
		s.T.Fatalf("no %s within %v: %v", what, within, err)
	}
	return e
}

// Ended accepts the event that reports the end of a request.
func Ended(id int64) func(cluster.Event) bool {
	return func(e cluster.Event) bool {
		return e.Request != nil && e.Request.ID == id && e.Request.State != assign.Pending
	}
}

// Column reads one column of a result.
func Column[T any](s *Site, sql string, args ...any) []T {
	s.T.Helper()
	rows, err := s.DB.Query(s.T.Context(), sql, args...)
	if err != nil {
		s.T.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		s.T.Fatal(err)
	}
	return values
}

// Await polls until a query returns true, and fails the test if that takes too long.
func (s *Site) Await(what string, within time.Duration, sql string, args ...any) {
	s.T.Helper()
	Await(s.T, what, within, func() bool { return slices.Contains(Column[bool](s, sql, args...), true) })
}

// Await polls until so returns true, and fails the test if that takes too long.
func Await(t *testing.T, what string, within time.Duration, so func() bool) {
	t.Helper()
	deadline := time.NewTimer(timeout.Scale(within))
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// Executions returns when each heavy query began that the server is executing in this database now. A session whose
// client is gone counts as active until its process ends. Its transaction is over before, and others may have its locks.
const Executions = `
select pid::text || ' ' || query_start::text
from pg_stat_activity
where datname = current_database() and state = 'active' and xact_start is not null and position($1 in query) > 0`

// QueryRuns waits until a heavy query is executing and sleeps.
func (s *Site) QueryRuns() {
	s.T.Helper()
	Await(s.T, "the query runs", 30*time.Second, func() bool { return len(Column[string](s, sleepers, Marker)) > 0 })
}

// States returns the states of all runs, oldest first.
func (s *Site) States() string {
	s.T.Helper()
	return strings.Join(Column[string](s, `select state from getwork.run order by id`), " ")
}

// Soon bounds what should take a moment, on a machine that does many other things.
const Soon = 20 * time.Second

// Lock takes a lock in a transaction of the test's own, until the returned function is called.
func (s *Site) Lock(statement string, args ...any) (unlock func()) {
	s.T.Helper()
	tx, err := s.DB.Begin(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(s.T.Context()) })
	s.T.Cleanup(unlock)
	if _, err := tx.Exec(s.T.Context(), statement, args...); err != nil {
		s.T.Fatal(err)
	}
	return unlock
}
