package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// Settings that a query makes end with it. Neither the query nor a recheck can switch off the time-out of the recheck that
// comes after it, and many rechecks, each within its time, are bounded together, too.
func TestRecheckDoesNotEscapeItsTimeout(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	const unbound = `select i || left(set_config('statement_timeout', '0', true), 0) as item from generate_series(1, 1) i`
	limit := timeout.Scale(time.Second) // in which a busy machine also reads what blocks items
	for where, s := range setUps(t) {
		s.options.MaxRuns = 3
		n := s.start(t, false)
		for name, c := range map[string]struct{ query, recheck string }{
			"set by the query":   {unbound, `select x as item from unnest($1) x, pg_sleep(600)`},
			"set by the recheck": {`select i as item from generate_series(1, 1000) i`, `select left(case when x = '501' then pg_sleep(600)::text else set_config('statement_timeout', '0', true) end, 0) as item from unnest($1) x`},
			"many rechecks":      {`select i as item from generate_series(1, 20000) i`, fmt.Sprintf(`select '' as item from unnest($1) x, pg_sleep(%v) limit 1`, 0.9*limit.Seconds())},
		} {
			t.Run(where+", "+name, func(t *testing.T) {
				t.Parallel()
				task := strings.ReplaceAll(name, " ", "-")
				newTask(t, n, task, c.query, func(s *assign.Settings) {
					s.Recheck, s.QueryTimeout, s.MaxCandidates = assign.Query(c.recheck), assign.Duration(limit), 100_000
					s.MaxRequest = 1000
				})
				r := n.endedRequest(t, n.click(t, task, "ann", 1000).ID) // so eight rechecks
				if r.State != assign.Failed || r.Error == nil || !strings.Contains(*r.Error, fmt.Sprintf("query_timeout of %s", limit)) {
					t.Errorf("it ended as %s (%v), want it failed for its time-out", r.State, r.Error)
				}
			})
		}
	}
}

// Advisory locks that a query takes for the session end with it, wherever it is executed: the connection is used again, and
// nothing else would release them.
func TestAdvisoryLocksEndWithTheQuery(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	const locks = `select i || left(pg_advisory_lock(i)::text, 0) as item from generate_series(1, 9) i`
	const recheck = `select x || left(pg_advisory_lock(100 + x::integer)::text, 0) as item from unnest($1) x`
	for where, s := range setUps(t) {
		n, db := s.start(t, false), s.db
		newTask(t, n, "locks", locks, func(s *assign.Settings) { s.Recheck, s.FreshFor = recheck, assign.Duration(time.Hour) })
		for what, f := range map[string]func(ctx context.Context) error{
			"run and recheck": func(ctx context.Context) error {
				r := n.endedRequest(t, n.click(t, "locks", "ann", 1).ID)
				if r.State != assign.Assigned {
					t.Errorf("%s: ann is %s: %v", where, r.State, r.Error)
				}
				return nil
			},
			"preview": func(ctx context.Context) error { _, err := n.Ranker.Preview(ctx, "locks", nil, 5); return err },
			"explain": func(ctx context.Context) error { _, err := n.Explain(ctx, "locks", "7"); return err },
			"recheck": func(ctx context.Context) error {
				_, err := n.Ranker.Recheck(ctx, asking(recheck), []string{"1"})
				return err
			},
		} {
			if err := f(t.Context()); err != nil {
				t.Errorf("%s, %s: %v", where, what, err)
			}
			if left := query[int](t, db, `select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`); left != 0 {
				t.Errorf("%s, %s: %d advisory locks are left", where, what, left)
			}
		}
	}
}

// A query that fills the table of locks, which all databases of a server share, fails, and the server goes on: the table was
// full for no longer than the query ran. A login that may only connect can fill it, too.
func TestFullLockTableIsGivenBack(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	server := schematest.OwnServer(t, map[string]string{"max_connections": "50"})
	url := server.URL("getwork")
	const fills = `select count(pg_advisory_lock(g))::text as item from generate_series(1, 30000) g`
	for where, n := range map[string]*node{"here": startNode(t, url, nodeOptions{}), "there": startNode(t, url, nodeOptions{Queries: schematest.Connector(t, url)})} {
		tried := assign.DefaultSettings()
		tried.Query = fills
		if _, err := n.Ranker.PreviewNew(t.Context(), tried, 1); err == nil || !strings.Contains(err.Error(), "53200") {
			t.Fatalf("%s: %v, want that the table of locks was full", where, err)
		}
		goesOn(t, server.URL("postgres"))
		newTask(t, n, "fills-"+where, fills, nil)
		r := n.click(t, "fills-"+where, "ann", 1)
		db := pool(t, url)
		// The run is repeated, and while it runs everybody's locks may fail.
		is := func(what string) bool {
			var is bool
			return db.QueryRow(t.Context(), what).Scan(&is) == nil && is
		}
		await(t, "the run fails", func() bool {
			return is(`select exists (select from getwork.run where state = 'failed' and error like '%53200%')`)
		})
		await(t, "ann gives up", func() bool {
			_, err := n.Cancel(t.Context(), r.ID, assign.Holder{User: "ann"}, false)
			return err == nil
		})
		await(t, "its locks are released", func() bool {
			return is(`select not exists (select from getwork.run where state = 'running') and not exists (select from pg_locks where locktype = 'advisory')`)
		})
		goesOn(t, server.URL("postgres"))
		execute(t, db, `delete from getwork.run`)
	}
}

// goesOn connects to another database of the server, and takes a lock that others may want, too.
func goesOn(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("the server refuses a connection: %v", err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `begin; create table here (i integer primary key); rollback`); err != nil {
		t.Errorf("the server has no lock left: %v", err)
	}
}
