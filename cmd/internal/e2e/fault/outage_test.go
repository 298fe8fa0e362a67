package fault

import (
	"context"
	"strconv"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/postgres"
	"getwork/schema/schematest"
)

func nodeIs(state assign.NodeState) func(cluster.Event) bool {
	return func(e cluster.Event) bool { return e.Node != nil && e.Node.State == state }
}

// The listener's connection is cut: the node says so, listens again, catches up, and pushes as before.
func TestListenerTerminated(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "")
	s.Task("verify", e2e.Heavy(1, 100))
	socket := s.Dial("oliver", 0)
	const cut = `select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and application_name = 'getwork listener'`
	if n := column[int64](s, cut); n[0] != 2 {
		t.Fatalf("%d listeners; want one for each node", n[0])
	}
	s.Hear(socket, "lagging", e2e.Soon, nodeIs(assign.Lagging))
	snapshots := 0
	s.Hear(socket, "live", 30*time.Second, func(e cluster.Event) bool {
		if e.Snapshot != nil {
			snapshots++
		}
		return nodeIs(assign.Live)(e)
	})
	if snapshots == 0 {
		t.Error("no snapshot between lagging and live")
	}
	still := s.Standstill()
	r := s.Click("oliver", 1, 2)
	told := s.Pushed(socket, 0, r, e2e.Soon)
	if late := time.Since(*told.CompletedAt) - still(); late > time.Second {
		t.Errorf("pushed %v after the round", late)
	}
}

// PostgreSQL crashes or is stopped while people wait, and comes back: nodes answer 503 meanwhile, keep their sockets,
// and then serve the waiting requests.
func TestPostgresAway(t *testing.T) {
	for name, end := range map[string]func(*postgres.Server){
		"crash": (*postgres.Server).Crash,
		"stop":  func(server *postgres.Server) { server.Halt(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) { away(t, end) })
	}
}

func away(t *testing.T, end func(*postgres.Server)) {
	server := schematest.OwnServer(t, map[string]string{"synchronous_commit": "on"})
	s := newSite(t, 2, server.URL("getwork"))
	const query = 2 * time.Second
	s.Task("verify", e2e.Heavy(query.Seconds(), 100))
	oliver, tracy := s.Dial("oliver", 0), s.Dial("tracy", 1)
	requests := []assign.Request{s.Click("oliver", 0, 2)}
	s.QueryRuns()
	requests = append(requests, s.Click("tracy", 0, 3))

	end(server)
	s.DB.Reset()
	if e2e.ModeNow != e2e.Polling {
		s.Hear(oliver, "lagging", 40*time.Second, nodeIs(assign.Lagging))
	}
	s.unavailable()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	back, still := time.Now(), s.Standstill()
	s.Pushed(oliver, 0, requests[0], time.Minute) // on the same socket
	s.Pushed(tracy, 1, requests[1], time.Minute)
	took := time.Since(back) - still()
	t.Logf("served %v after the database was back, with a query of %v and %v of standstill", took, query, still())
	if took > query+2*takeOver {
		t.Errorf("served %v after the database was back; want it within %v", took, query+takeOver)
	}
	for i, r := range requests {
		if got := s.Served(r.User, i, r.ID, e2e.Soon); len(got.Work) != r.Wanted {
			t.Errorf("%s got %+v", r.User, got)
		}
	}
	for i, node := range s.Nodes {
		e2e.Await(t, "ready again", time.Minute, func() bool { return node.Ready() == 200 })
		r, a, err := s.As("peter", i).GetWork(t.Context(), "verify", 1, "Prefer", "wait=60")
		if err != nil || a.Status != 201 || len(r.Work) != 1 {
			t.Errorf("node %d afterwards: %d %s, %v", i, a.Status, a.Body, err)
		}
	}
	s.NoDuplicates()
}

// unavailable checks the nodes' answers while the database is away.
func (s *site) unavailable() {
	s.T.Helper()
	for i, node := range s.Nodes {
		for method, path := range map[string]string{"GET": "/api/v1/tasks", "POST": "/api/v1/tasks/verify/requests"} {
			body := map[string]any{"count": 1}
			if method == "GET" {
				body = nil
			}
			a, err := s.As("peter", i).Do(s.T.Context(), method, path, body)
			if err != nil || a.Status != 503 || a.Header.Get("Retry-After") == "" || a.Problem.Type != "/problems/unavailable" {
				s.T.Errorf("node %d without a database: %s %s: %d %s, %v", i, method, path, a.Status, a.Body, err)
			}
		}
		s.Figure(i, "getwork_looks_total") // does not use the database
		if status := s.Said(node); status != 503 {
			s.T.Errorf("node %d without a database is ready: %d", i, status)
		}
	}
}

// A run's connection breaks, and nobody waits any more; a day later one breaks again: that does not count as a day of
// failures, and the run is repeated.
func TestFaultLongAfterAnother(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	s := newSite(t, 2, "")
	query, open := s.Gated(1, 100)
	s.Task("verify", query)
	s.Exec(`
create function later() returns trigger language plpgsql as $$
begin
  new.retry_at := clock_timestamp() + interval '25 seconds';
  return new;
end $$;
create trigger later before update on getwork.task_state for each row when (new.retries = 1 and old.retries = 0) execute function later()`)
	const cut = `select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`
	first := s.Click("oliver", 0, 2)
	s.QueryRuns()
	e2e.Await(t, "the query is cut off", e2e.Soon, func() bool { return column[int64](s, cut)[0] == 1 })
	s.Await("the run is given up", e2e.Soon, `select count(*) > 0 from getwork.task_state where retries = 1`)
	if a, err := s.As("oliver", 0).Do(t.Context(), "DELETE", "/api/v1/requests/"+strconv.FormatInt(first.ID, 10), nil); err != nil || a.Status != 200 {
		t.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	s.Exec(`drop trigger later on getwork.task_state`) // until now it kept the run from being repeated while somebody waited
	column[bool](s, `update getwork.task_state set retry_since = retry_since - interval '1 day', retry_at = retry_at - interval '1 day' returning true`)
	r := s.Click("tracy", 0, 2)
	s.QueryRuns()
	e2e.Await(t, "the query is cut off", e2e.Soon, func() bool { return column[int64](s, cut)[0] == 1 })
	open()
	s.Served("tracy", 1, r.ID, time.Minute)
}
