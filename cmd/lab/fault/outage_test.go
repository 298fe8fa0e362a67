package fault

import (
	"strconv"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

func nodeIs(state assign.NodeState) func(cluster.Event) bool {
	return func(e cluster.Event) bool { return e.Node != nil && e.Node.State == state }
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
		if status := s.said(node); status != 503 {
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
