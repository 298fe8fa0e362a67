package engine

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/ranking"
	"getwork/schema/schematest"
)

// reader makes a login that may read the tables named and nothing else, and returns the URL that uses it.
func reader(t *testing.T, address, tables string) string {
	t.Helper()
	there := schematest.Connector(t, address)
	u, err := url.Parse(there)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, pool(t, address), `grant select on `+tables+` to `+u.User.Username())
	return there
}

// With a query database, ranking queries run there, by a login that can't see getwork at all. Blocked rows are dropped chunk
// by chunk, and the order stays.
func TestQueriesElsewhere(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	address := schematest.URL(t)
	db := pool(t, address)
	execute(t, db, `create table loan as select i as id, i * 10 as amount from generate_series(1, 5000) i; insert into loan values (null, 1), (1, 1)`)
	n := startNode(t, address, nodeOptions{Queries: reader(t, address, "loan")})
	task := newTask(t, n, "task", `select id as item, amount from loan order by id nulls first`, func(s *assign.Settings) { s.MaxCandidates = 100; s.FreshFor = assign.Duration(time.Hour) })
	execute(t, db, `insert into getwork.work (task_id, item, user_name) select $1, i, 'ann' from generate_series(1, 2500) i`, task.ID)
	bob := n.endedRequest(t, n.click(t, "task", "bob", 3).ID)
	cyd := n.click(t, "task", "cyd", 2)
	if got := fmt.Sprint(items(bob), items(cyd)); got != "[2501 2502 2503] [2504 2505]" {
		t.Errorf("bob and cyd got %s", got)
	}
	if got := compact(bob.Work[0]); got != `{"amount":25010}` {
		t.Errorf("details %s", got)
	}
	if got := query[string](t, db, `select format('%s blocked, %s passed over, cut %s, %s candidates', blocked, passed_over, cut, candidates) from getwork.run`); got != "2500 blocked, 2 passed over, cut t, 100 candidates" {
		t.Error(got)
	}
	for _, q := range []string{`select id as item from getwork.work`, `select nope as item from loan`, `update loan set id = 1 returning id as item`} {
		s := assign.DefaultSettings()
		s.Name, s.Query = "refused", assign.Query(q)
		if _, err := n.CreateTask(t.Context(), s, "boss"); !assign.IsRefusal(err, assign.QueryRefused) {
			t.Errorf("%s: %v", q, err)
		}
	}
	newTask(t, n, "slow", `select id as item from loan, pg_sleep(30)`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(200 * time.Millisecond) })
	failsWith(t, n, "slow", "longer than its query_timeout")
}

// The query database may lag behind, or its clock be ahead. What was closed within the five seconds before a query is handed out
// neither by a run, where it does not count as one of the candidates either, nor by a claim.
func TestJustClosedElsewhere(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"by a login of their own": 0, "on a server whose clock is ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := schematest.URL(t)
			there := address
			if ahead > 0 {
				server, clock := schematest.ClockServer(t)
				clock.Set(ahead)
				there = server.URL("getwork")
			}
			db := pool(t, address)
			execute(t, pool(t, there), `create table loan as select i::text as id from generate_series(1, 9) i`)
			n := startNode(t, address, nodeOptions{Queries: reader(t, there, "loan")})
			newTask(t, n, "task", `select id as item from loan order by id`, func(s *assign.Settings) { s.MaxCandidates = 2 })
			for _, item := range []string{"1", "2"} {
				w, _, err := n.Claim(t.Context(), "task", item, who("ann"))
				if err != nil {
					t.Fatal(err)
				}
				n.let(t, w, assign.Disposition{Outcome: "complete"})
			}
			// However slow this machine is, it was just now.
			execute(t, db, `update getwork.work set closed_at = clock_timestamp() + interval '1 minute'`)
			if r := n.endedRequest(t, n.click(t, "task", "bob", 2).ID); fmt.Sprint(items(r)) != "[3 4]" {
				t.Errorf("bob is %s with %v", r.State, items(r))
			}
			_, _, err := n.Claim(t.Context(), "task", "1", who("bob"))
			wantKind(t, err, assign.NotAvailable)
		})
	}
}

// An earlier run that still executes there, its node dead, keeps a second one from starting. Its requests wait, and are
// served when it is over.
func TestFormerRunElsewhere(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	address := schematest.URL(t)
	db := pool(t, address)
	execute(t, db, `create table loan as select 1 as id`)
	n := startNode(t, address, nodeOptions{Queries: reader(t, address, "loan")})
	task := newTask(t, n, "task", `select id as item from loan`, nil)
	former, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer former.Rollback(context.Background())
	if _, err := former.Exec(t.Context(), ranking.QueryLock, n.Ranker.QueryLockClass(), int32(task.ID)); err != nil {
		t.Fatal(err)
	}
	r := n.click(t, "task", "ann", 1)
	await(t, "a run was given up", func() bool { return query[int](t, db, `select count(*) from getwork.run where state = 'failed'`) > 0 })
	if got := query[string](t, db, `select min(error) from getwork.run`); !strings.Contains(got, "earlier run") {
		t.Errorf("its error is %q", got)
	}
	if r, _ := n.Request(t.Context(), r.ID, r.Holder(), false); r.State != assign.Pending {
		t.Errorf("meanwhile the request is %s", r.State)
	}
	if err := former.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("then it is %s", r.State)
	}
}

// A former run whose node froze while it received the rows holds the lock for as long as nobody reads them. Once its time is
// over it is ended by the next run.
func TestFrozenRunElsewhere(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	address := schematest.URL(t)
	db := pool(t, address)
	execute(t, db, `create table loan as select 1 as id`)
	queries := reader(t, address, "loan")
	n := startNode(t, address, nodeOptions{Queries: queries})
	task := newTask(t, n, "task", `select id as item from loan`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(time.Second) })
	frozen, err := pgx.Connect(t.Context(), queries)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = frozen.Close(context.Background()) }()
	for _, q := range []string{`begin`, fmt.Sprintf(`select pg_advisory_xact_lock(%d, %d)`, n.Ranker.QueryLockClass(), task.ID)} {
		if _, err := frozen.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := frozen.Query(t.Context(), `select repeat('x', 8000) from generate_series(1, 100000)`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	await(t, "it waits for its client", func() bool {
		return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'ClientWrite'`) == 1
	})
	if r := n.endedRequest(t, n.click(t, "task", "ann", 1).ID); r.State != assign.Assigned {
		t.Errorf("the request is %s (%v)", r.State, r.Error)
	}
}

// A result that is cut ends the query, and the recheck goes on in its transaction.
func TestCutElsewhere(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := startNode(t, address, nodeOptions{Queries: address})
	newTask(t, n, "task", `select generate_series(1, 10000000000) as item`, func(s *assign.Settings) {
		s.MaxCandidates, s.Recheck = 10, `select i as item from unnest($1::text[]) i where i::bigint % 2 = 0`
	})
	if r := n.endedRequest(t, n.click(t, "task", "ann", 2).ID); fmt.Sprint(items(r)) != "[2 4]" {
		t.Errorf("ann got %v (%v)", items(r), r.Error)
	}
	if got := query[string](t, pool(t, address), `select format('cut %s, %s candidates', cut, candidates) from getwork.run`); got != "cut t, 10 candidates" {
		t.Error(got)
	}
}

// When the connection that holds the run lock is lost, so is the query that runs elsewhere. It may use several cores, as under
// the node's login.
func TestLostLockEndsTheQueryElsewhere(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	address := schematest.URL(t)
	db := pool(t, address)
	name := pgx.Identifier{query[string](t, db, `select current_database()`)}.Sanitize()
	execute(t, db, `create table loan as select i as id, 600::float8 as seconds from generate_series(1, 2000) i; analyze loan; alter table loan set (parallel_workers = 1);
		alter database `+name+` set parallel_setup_cost = 0; alter database `+name+` set parallel_tuple_cost = 0`)
	n := startNode(t, address, nodeOptions{Queries: reader(t, address, "loan")})
	newTask(t, n, "task", `select id as item from loan where pg_sleep(seconds) is not null`, nil)
	r := n.click(t, "task", "ann", 1)
	const executing = `select count(*) from pg_stat_activity where datname = current_database() and state = 'active' and query like '%pg_sleep(seconds)%' and pid <> pg_backend_pid()`
	await(t, "a second process takes part in the query", func() bool { return query[int](t, db, executing) == 2 })
	execute(t, db, `update loan set seconds = 0`)
	execute(t, db, `select pg_terminate_backend(pid) from pg_locks where database = (select oid from pg_database where datname = current_database()) and relation = 'getwork.task'::regclass and mode = 'RowShareLock' and pid <> pg_backend_pid()`)
	if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("the request is %s (%v)", r.State, r.Error)
	}
	if got := query[int](t, db, executing); got != 0 {
		t.Errorf("%d queries still execute", got)
	}
}

// An item that was closed too late for the query database to have seen it is dropped before the limit is counted, not after:
// a cut result of nothing would make the query run again and again.
func TestClosedLatelyElsewhere(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	address := schematest.URL(t)
	n := startNode(t, address, nodeOptions{Queries: address})
	db := pool(t, address)
	newTask(t, n, "task", numbers, func(s *assign.Settings) { s.MaxCandidates = 1 })
	ann := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	if _, err := n.Dispose(t.Context(), ann.Work[0].ID, assign.Disposition{Outcome: "return", After: after(0)}, ann.Holder(), false); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, n.click(t, "task", "ben", 1).ID); fmt.Sprint(items(r)) != "[2]" {
		t.Errorf("ben got %v, want [2]: 1 may have been ranked by what was true before", items(r))
	}
	if n := runs(t, db); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

// The time limit is that of all rows together.
func TestTimeoutElsewhereCountsAllRows(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	address := schematest.URL(t)
	n := startNode(t, address, nodeOptions{Queries: address})
	newTask(t, n, "task", `select i as item from generate_series(1, 5000) i where case when i % 100 = 0 then pg_sleep(0.05) is not null else true end`,
		func(s *assign.Settings) { s.QueryTimeout, s.MaxCandidates = assign.Duration(time.Second), 10_000 })
	failsWith(t, n, "task", "longer than its query_timeout")
}

// A query database that can't be reached, or refuses the node, is not the query's fault.
func TestNoConnectionElsewhere(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	db := pool(t, address)
	a := startNode(t, address, nodeOptions{Deaf: true})
	newTask(t, a, "task", numbers, nil)
	name := query[string](t, db, `select current_database()`)
	b := startNode(t, address, nodeOptions{Deaf: true, Queries: strings.Replace(address, name, "no_such_database", 1)})
	r := b.click(t, "task", "ann", 1)
	await(t, "a run was given up", func() bool { return query[int](t, db, `select count(*) from getwork.run where state = 'failed'`) > 0 })
	if r, err := b.Request(t.Context(), r.ID, r.Holder(), false); err != nil || r.State != assign.Pending {
		t.Errorf("the request is %s (%v)", r.State, err)
	}
}
