package main

import (
	"context"
	"fmt"
	"net/http"
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

// site is a database and the nodes that serve from it.
type site struct {
	t     *testing.T
	url   string
	db    *pgxpool.Pool
	nodes []*cluster.Node

	samples atomic.Int64 // executions that were seen; see sample
}

// newSite starts n nodes on the database of that URL; empty: one of the test's own. They serve, and hear of each other: a node
// is ready before it listens, and until then it tells later what others do.
func newSite(t *testing.T, n int, url string, args ...string) *site {
	t.Helper()
	if url == "" {
		url = schematest.URL(t)
	}
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s := &site{t: t, url: url, db: db, nodes: cluster.Start(t, n, modeNow.options(t, url, args...))}
	if modeNow != polling && !slices.Contains(args, "--no-listen") {
		for node := range n {
			await(t, "the node listens", 30*time.Second, func() bool { return s.figure(node, "getwork_listener_up") == 1 })
		}
	}
	return s
}

// as is somebody at the i-th node.
func (s *site) as(user string, i int) cluster.Client { return s.nodes[i].Client(user) }

// marker is in every heavy query, near its beginning: of a statement the server shows 1024 bytes.
const marker = "/* heavy */"

// heavy is a ranking query that sleeps, and then gives the items 1 to n in that order.
func heavy(seconds float64, n int) string {
	return fmt.Sprintf(marker+` with nap as materialized (select pg_sleep(%g))
select i as item, i %% 7 as weight from nap cross join generate_series(1, %d) i order by i`, seconds, n)
}

// gated is a heavy query that does not end before the gate is opened, nor do those that follow it while it is shut: what a
// test does meanwhile may take as long as it does. The lock is of the database's, and no row's, so that a transaction of
// any isolation level sees that it is free.
func (s *site) gated(seconds float64, n int) (query string, open func()) {
	s.t.Helper()
	s.exec(`
create function gate() returns void language plpgsql as $$
begin
  while not pg_try_advisory_xact_lock_shared(1717, 1) loop perform pg_sleep(0.02); end loop;
end $$`)
	return fmt.Sprintf(marker+` with nap as materialized (select pg_sleep(%g), gate())
select i as item, i %% 7 as weight from nap cross join generate_series(1, %d) i order by i`, seconds, n), s.shut()
}

// shut shuts the gate until the returned function opens it.
func (s *site) shut() (open func()) {
	s.t.Helper()
	return s.lock(`select pg_advisory_xact_lock(1717, 1)`)
}

func (s *site) task(name, query string) {
	s.t.Helper()
	if err := s.as("mary", 0).CreateTask(s.t.Context(), map[string]any{"name": name, "query": query}); err != nil {
		s.t.Fatal(err)
	}
}

// click asks for work and expects to be told to wait.
func (s *site) click(user string, node, count int) assign.Request {
	s.t.Helper()
	r, a, err := s.as(user, node).GetWork(s.t.Context(), "verify", count)
	if err != nil || a.Status != 202 {
		s.t.Fatalf("click of %s: %d %s %v", user, a.Status, a.Body, err)
	}
	return r
}

// served waits until a request is assigned in full.
func (s *site) served(user string, node int, id int64, within time.Duration) assign.Request {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	r, err := s.as(user, node).Await(ctx, id)
	if err != nil || r.State != assign.Assigned {
		s.t.Fatalf("request %d of %s: %s, %v", id, user, r.State, err)
	}
	return r
}

// dial opens somebody's live channel, and closes it with the test.
func (s *site) dial(user string, node int) *cluster.Socket {
	s.t.Helper()
	socket, _, err := s.as(user, node).Dial(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(socket.Close)
	return socket
}

// hear reads a live channel until a message is wanted.
func (s *site) hear(socket *cluster.Socket, what string, within time.Duration, wanted func(cluster.Event) bool) cluster.Event {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	e, err := socket.Until(ctx, wanted)
	if err != nil {
		s.t.Fatalf("no %s within %v: %v", what, within, err)
	}
	return e
}

// ended is the event that tells the end of a request.
func ended(id int64) func(cluster.Event) bool {
	return func(e cluster.Event) bool {
		return e.Request != nil && e.Request.ID == id && e.Request.State != assign.Pending
	}
}

// column reads one column of a result.
func column[T any](s *site, sql string, args ...any) []T {
	s.t.Helper()
	rows, err := s.db.Query(s.t.Context(), sql, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		s.t.Fatal(err)
	}
	return values
}

// await waits until a query gives true.
func (s *site) await(what string, within time.Duration, sql string, args ...any) {
	s.t.Helper()
	await(s.t, what, within, func() bool { return slices.Contains(column[bool](s, sql, args...), true) })
}

// await waits until something is so, by asking.
func await(t *testing.T, what string, within time.Duration, so func() bool) {
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

// executions are the heavy queries that the server executes in this database now, each with the time it began.
const executions = `
select pid::text || ' ' || query_start::text
from pg_stat_activity
where datname = current_database() and state = 'active' and position($1 in query) > 0`

// queryRuns waits until a heavy query is executed, and sleeps.
func (s *site) queryRuns() {
	s.t.Helper()
	await(s.t, "the query runs", 30*time.Second, func() bool { return len(column[string](s, sleepers, marker)) > 0 })
}

// said is what a node says of being ready, as soon as it says anything.
func (s *site) said(node *cluster.Node) (status int) {
	s.t.Helper()
	await(s.t, "the node says whether it is ready", 30*time.Second, func() bool {
		status = node.Ready()
		return status != 0
	})
	return status
}

// ready is the status of a node that has its database. It is asked again when the machine stood still meanwhile: that the
// database did not answer in time is not the node's fault then.
func (s *site) ready(node int) (status int) {
	s.t.Helper()
	for {
		still := s.standstill()
		if status = s.nodes[node].Ready(); status == http.StatusOK || still() < 500*time.Millisecond || s.t.Context().Err() != nil {
			return status
		}
	}
}

// noDuplicates checks that no item was handed out twice.
func (s *site) noDuplicates() {
	s.t.Helper()
	if twice := column[string](s, `select item from getwork.work group by task_id, item having count(*) > 1`); len(twice) > 0 {
		s.t.Errorf("handed out more than once: %v", twice)
	}
}

// states are the states of all runs, oldest first.
func (s *site) states() string {
	s.t.Helper()
	return strings.Join(column[string](s, `select state from getwork.run order by id`), " ")
}

// soon bounds what should take a moment, on a machine that does many other things.
const soon = 20 * time.Second

// lock locks in a transaction of the test's own, until the returned function is called.
func (s *site) lock(statement string, args ...any) (unlock func()) {
	s.t.Helper()
	tx, err := s.db.Begin(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(s.t.Context()) })
	s.t.Cleanup(unlock)
	if _, err := tx.Exec(s.t.Context(), statement, args...); err != nil {
		s.t.Fatal(err)
	}
	return unlock
}
