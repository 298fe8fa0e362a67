package page

import (
	"strings"

	"getwork/cmd/internal/e2e"
)

// Leased creates a task that hands out the items, best first, and takes them back when the lease is over.
func Leased(s *e2e.Site, lease string, items ...string) {
	s.T.Helper()
	err := s.As("mary", 0).CreateTask(s.T.Context(), map[string]any{"name": "verify", "lease": lease, "query": `
		select item from unnest(array['` + strings.Join(items, "','") + `']) with ordinality as u (item, n) order by n`})
	if err != nil {
		s.T.Fatal(err)
	}
}

// Gated creates a task whose query waits until open is called, and then returns five items.
func Gated(s *e2e.Site) (open func()) {
	s.T.Helper()
	conn, err := s.DB.Acquire(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(conn.Release)
	if _, err := conn.Exec(s.T.Context(), `select pg_advisory_lock(7)`); err != nil {
		s.T.Fatal(err)
	}
	s.Task("verify", `with gate as materialized (select pg_advisory_xact_lock_shared(7))
		select i as item, i * 1000.50 as amount from gate cross join generate_series(1, 5) i order by i`)
	return func() {
		s.T.Helper()
		if _, err := conn.Exec(s.T.Context(), `select pg_advisory_unlock(7)`); err != nil {
			s.T.Fatal(err)
		}
	}
}
