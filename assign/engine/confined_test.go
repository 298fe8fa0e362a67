package engine

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// setUp is one way in which a bank lets queries run.
type setUp struct {
	address string        // of the database, for a superuser
	db      *pgxpool.Pool // the same
	node    string        // the URL of the node's login
	options nodeOptions
}

// setUps returns both ways, each with a database of its own: the node's login enters a query role, or queries have a login of
// their own, which may only connect. No login is a superuser.
func setUps(t *testing.T) map[string]setUp {
	t.Helper()
	here, there := schematest.URL(t), schematest.URL(t)
	login, through := worker(t, here)
	role := strings.Replace(login, "worker_", "role_", 1)
	db := pool(t, here)
	execute(t, db, `create role `+role+`; grant `+role+` to `+login+`; grant usage on schema getwork to `+role+`; grant select on getwork.blocked to `+role)
	t.Cleanup(func() { _, _ = db.Exec(context.Background(), `drop owned by `+role+`; drop role `+role) })
	_, apart := worker(t, there)
	return map[string]setUp{
		"query role":  {here, db, through, nodeOptions{Role: role}},
		"query login": {there, pool(t, there), apart, nodeOptions{Queries: schematest.Connector(t, there)}},
	}
}

// start starts a node, with queries confined or not.
func (s setUp) start(t *testing.T, confined bool) *node {
	t.Helper()
	o := s.options
	o.Confine = confined
	return startNode(t, s.node, o)
}

// An escape is what a query must not be able to do. A query that leaves the role runs what is written here with the rights of
// its login.
func leaving(statement string) string {
	return `with out as materialized (select set_config('role', 'none', true)) select left(query_to_xml($q$` + statement + `$q$, true, true, '')::text, 100) as item from out`
}

// escapes are texts of queries and rechecks, each of which has once done harm. They are refused when they are saved.
var escapes = map[string]struct{ query, recheck string }{
	"leave the role":     {leaving(`select usename from pg_stat_activity`), ""},
	"read a file":        {leaving(`select pg_read_file('PG_VERSION')`), ""},
	"write a file":       {`select lo_from_bytea(4711, 'x')::text as item`, `select lo_export(4711, '/tmp/getwork-was-here')::text as item from unnest($1::text[])`},
	"reload":             {leaving(`select pg_reload_conf()`), ""},
	"fill the locks":     {`select count(pg_advisory_lock(g))::text as item from generate_series(1, 30000) g`, ""},
	"hold getwork's key": {`select pg_advisory_lock(1735093609, 1)::text as item`, ""},
	"set the time-out":   {`select set_config('statement_timeout', '0', true) as item`, `select x as item from unnest($1::text[]) x, pg_sleep(600)`},
	"slow recheck":       {`select 1 as item`, `select x as item from unnest($1::text[]) x, pg_sleep(600)`},
}

// Where log-in is needed, none of the known escapes can be saved or previewed, neither as a query nor as a recheck.
func TestEscapesAreRefusedWhenSaved(t *testing.T) {
	t.Parallel()
	for where, s := range setUps(t) {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			n := s.start(t, true)
			plain := newTask(t, n, "plain", `select 'x' as item`, nil)
			for name, c := range escapes {
				settings := assign.DefaultSettings()
				settings.Name, settings.Query, settings.Recheck = "escape", assign.Query(c.query), assign.Query(c.recheck)
				_, err := n.CreateTask(t.Context(), settings, "boss")
				wantRefused(t, name+": create", err)
				change := func(s *assign.Settings) error { s.Recheck = settings.Recheck; return nil }
				if c.query != `select 1 as item` {
					change = func(s *assign.Settings) error { s.Query = settings.Query; return nil }
					_, err := n.Ranker.Preview(t.Context(), "plain", &settings.Query, 1)
					wantRefused(t, name+": preview", err)
					_, err = n.Ranker.PreviewNew(t.Context(), settings, 1)
					wantRefused(t, name+": preview of a new one", err)
				}
				_, err = n.UpdateTask(t.Context(), "plain", plain.Version, "boss", change)
				wantRefused(t, name+": update", err)
			}
		})
	}
}

// wantRefused fails the test unless getwork itself has refused a query, and says which function it is about.
func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if !assign.IsRefusal(err, assign.QueryRefused) || !strings.Contains(err.Error(), "must not name") {
		t.Errorf("%s: %v", what, err)
	}
}

// A task that was saved before queries were confined is refused wherever its texts would be executed, and its requests are
// read why.
func TestStoredEscapesAreNotExecuted(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for where, s := range setUps(t) {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			db := s.db
			before := s.start(t, false)
			newTask(t, before, "query", `select i || left(pg_sleep(0)::text, 0) as item from generate_series(1, 9) i`, nil)
			newTask(t, before, "recheck", `select i as item from generate_series(1, 9) i`, func(s *assign.Settings) {
				s.Recheck, s.FreshFor = `select x as item from unnest($1) x where pg_sleep(0) is not null`, assign.Duration(time.Hour)
			})
			for _, task := range []string{"query", "recheck"} {
				if r := before.endedRequest(t, before.click(t, task, "ann", 1).ID); r.State != assign.Assigned {
					t.Fatalf("before, ann is %s of %s: %v", r.State, task, r.Error)
				}
			}
			before.stop()
			runs := query[int](t, db, `select count(*) from getwork.run`)

			n := s.start(t, true)
			for _, task := range []string{"query", "recheck"} {
				r := n.endedRequest(t, n.click(t, task, "bob", 1).ID)
				if r.State != assign.Failed || r.Error == nil || !strings.Contains(*r.Error, "must not name pg_sleep") || !strings.Contains(*r.Error, "leave it out") {
					t.Errorf("bob is %s of %s: %v", r.State, task, r.Error)
				}
			}
			var kinds []string
			rows, err := db.Query(t.Context(), `select state || ': ' || (error like '%pg_sleep%') from getwork.run where id > $1`, runs)
			if err == nil {
				kinds, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			if err != nil || len(kinds) == 0 || strings.Contains(fmt.Sprint(kinds), "finished") {
				t.Errorf("runs %v (%v)", kinds, err)
			}
			_, err = n.Ranker.Preview(t.Context(), "query", nil, 1)
			wantRefused(t, "preview", err)
			_, err = n.Explain(t.Context(), "query", "7")
			wantRefused(t, "explain", err)
			_, _, err = n.Claim(t.Context(), "query", "7", assign.Who{Holder: assign.Holder{User: "bob"}})
			wantRefused(t, "claim", err)
			_, _, err = n.Claim(t.Context(), "recheck", "7", assign.Who{Holder: assign.Holder{User: "bob"}})
			wantRefused(t, "claim from the shelf", err)
			_, err = n.Explain(t.Context(), "recheck", "7")
			wantRefused(t, "explain from the shelf", err)
			_, task, err := n.Find(t.Context(), "recheck", assign.Who{Anything: true})
			if err != nil {
				t.Fatal(err)
			}
			_, err = n.Ranker.RecheckNow(t.Context(), task, []string{"1"})
			wantRefused(t, "recheck", err)

			// Mended, and brought back.
			mended := func(s *assign.Settings) error { s.Query = `select i as item from generate_series(1, 9) i`; return nil }
			if _, err = n.UpdateTask(t.Context(), "query", 1, "boss", mended); err != nil {
				t.Fatal(err)
			}
			if r := n.endedRequest(t, n.click(t, "query", "cyd", 1).ID); r.State != assign.Assigned {
				t.Errorf("mended, cyd is %s: %v", r.State, r.Error)
			}
			_, err = n.Restore(t.Context(), "query", 1, 0, "boss", nil)
			wantRefused(t, "restore", err)
			// Other settings of a task can be changed, though its recheck would be refused.
			if _, err = n.UpdateTask(t.Context(), "recheck", 1, "boss", func(s *assign.Settings) error { s.Paused = true; return nil }); err != nil {
				t.Errorf("pause: %v", err)
			}
		})
	}
}

// What the boundary is: even a query that calls whatever it likes can do no more than its login. It reads no file and no
// password, writes no file, and reloads nothing; and a login of its own sees nothing of getwork.
func TestAQueryHasItsLoginsRights(t *testing.T) {
	t.Parallel()
	for where, s := range setUps(t) {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			n := s.start(t, false)
			statements := []string{`select pg_read_file('PG_VERSION')`, `select rolpassword from pg_authid`, `select pg_reload_conf()`,
				`select lo_export(lo_from_bytea(0, 'x'), '/tmp/getwork-was-here')`, `select pg_terminate_backend(pid) from pg_stat_activity where usename = 'postgres'`}
			if where == "query login" {
				statements = append(statements, `select public_id from getwork.session`, `select query from getwork.task_version`, `select item from getwork.blocked`,
					`update getwork.work set user_name = 'eve' returning id`)
			}
			for _, statement := range statements {
				_, err := n.Ranker.PreviewNew(t.Context(), previewing(leaving(statement)), 1)
				if !assign.IsRefusal(err, assign.QueryRefused) || !strings.Contains(err.Error(), "permission denied") && !strings.Contains(err.Error(), "must be a") {
					t.Errorf("%s: %v", statement, err)
				}
			}
		})
	}
}

func previewing(query string) assign.Settings {
	s := assign.DefaultSettings()
	s.Query = assign.Query(query)
	return s
}

// A large object that a query makes, which PostgreSQL 15 allows in a read-only transaction, is gone when the recheck begins,
// which could export it. Here the login could do both.
func TestLargeObjectsEndWithTheQuery(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	dir, err := os.MkdirTemp("", "getwork-lo-") // the account of PostgreSQL can't enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for where, c := range map[string]bool{"here": false, "there": true} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			address := schematest.URL(t)
			o := nodeOptions{}
			if c {
				o.Queries = address
			}
			n, db, file := startNode(t, address, o), pool(t, address), filepath.Join(dir, where)
			newTask(t, n, "task", `select lo_from_bytea(4711, 'x')::text as item`, func(s *assign.Settings) {
				s.Recheck = assign.Query(`select lo_export(4711, '` + file + `')::text as item from unnest($1::text[])`)
			})
			r := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
			// PostgreSQL 16 and later refuse the query itself.
			if r.State != assign.Failed || r.Error == nil || !strings.Contains(*r.Error, "large object 4711 does not exist") && !strings.Contains(*r.Error, "read-only") {
				t.Errorf("ann is %s: %v", r.State, r.Error)
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("the file is written")
			}
			if n := query[int](t, db, `select count(*) from pg_largeobject_metadata`); n != 0 {
				t.Errorf("%d large objects are left", n)
			}
		})
	}
}

// A query that takes the key under which getwork migrates gives it back when it ends, and while it runs its time is limited,
// so that the next migration goes on.
func TestAQueryDoesNotHoldUpAMigration(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	h := fnv.New32a()
	h.Write([]byte(schema.Default))
	takes := fmt.Sprintf(`select pg_advisory_lock(%d, %d)::text || x as item from (values ('1')) v (x)`, 0x67776d69, int32(h.Sum32()))
	for where, s := range setUps(t) {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			n := s.start(t, false)
			newTask(t, n, "task", takes, func(s *assign.Settings) {
				s.Recheck = assign.Query(strings.Replace(takes, "(values ('1')) v (x)", "unnest($1::text[]) x", 1))
			})
			newTask(t, n, "slow", strings.Replace(takes, "::text || x", "::text || pg_sleep(600)::text || x", 1), func(s *assign.Settings) { s.QueryTimeout = assign.Duration(2 * time.Second) })
			migrates := func(after string) {
				t.Helper()
				conn, err := pgx.Connect(t.Context(), s.address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(context.Background())
				ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(20*time.Second))
				defer cancel()
				if err := schema.Up(ctx, conn, schema.Default); err != nil {
					t.Errorf("after %s: %v", after, err)
				}
			}
			if r := n.endedRequest(t, n.click(t, "task", "ann", 1).ID); r.State != assign.Assigned {
				t.Errorf("ann is %s: %v", r.State, r.Error)
			}
			migrates("a run and its recheck")
			if _, err := n.Ranker.Preview(t.Context(), "task", nil, 1); err != nil {
				t.Error(err)
			}
			migrates("a preview")
			r := n.click(t, "slow", "bob", 1)
			await(t, "the query holds the key", func() bool {
				return query[bool](t, s.db, `select exists (select from pg_locks where locktype = 'advisory' and classid = $1 and granted and database = (select oid from pg_database where datname = current_database()))`, 0x67776d69)
			})
			migrates("waiting for the query's end")
			if r = n.endedRequest(t, r.ID); r.State != assign.Failed {
				t.Errorf("bob is %s", r.State)
			}
		})
	}
}
