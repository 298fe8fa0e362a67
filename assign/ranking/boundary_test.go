package ranking

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// confined returns a ranker that refuses queries which name a volatile function, and a pool of its database.
func confined(t testing.TB) (*Ranker, *pgxpool.Pool) {
	t.Helper()
	db, err := pgxpool.New(t.Context(), schematest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return New(Config{DB: pg.Router{Calls: db, Own: db}, Runs: db, SQL: func(s string) string { return s }, Confined: true}), db
}

// listOf returns what queries must not name on the pool's server, by a new connection.
func listOf(t testing.TB, db *pgxpool.Pool) *forbidden {
	t.Helper()
	db.Reset()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	list, err := forbiddenOn(t.Context(), tx)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func names(t testing.TB, db *pgxpool.Pool, sql string) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func execute(t testing.TB, db *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
}

// makeExtensions makes those of PostgreSQL's own extensions with the most volatile functions that this server has.
func makeExtensions(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	for _, e := range names(t, db, `select name from pg_available_extensions where name = any ('{adminpack,dblink,pageinspect,pgcrypto,pg_trgm,postgres_fdw,sslinfo,tablefunc,tsm_system_rows,uuid-ossp,xml2}')`) {
		execute(t, db, `create extension if not exists `+pgx.Identifier{e}.Sanitize()+` cascade`)
	}
}

// Every volatile function of this server, in each of the usual spellings, is refused, and so is every one of its extensions,
// where it is called.
func TestVolatileFunctionsAreRefused(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	_, db := confined(t)
	makeExtensions(t, db)
	list := listOf(t, db)
	harmless := []string{"clock_timestamp", "timeofday", "random", "gen_random_uuid", "current_query"}
	const callable = ` and (prorettype::regtype::text || ' ' || oidvectortypes(proargtypes)) !~ '\m(internal|trigger|event_trigger|\w+_handler)\M'`
	own := names(t, db, `select distinct proname from pg_proc where provolatile = 'v' and pronamespace = 11`+callable)
	if len(own) < 180 {
		t.Fatalf("the server has only %d volatile functions", len(own))
	}
	for _, name := range own {
		for _, spelt := range []string{name + "()", strings.ToUpper(name) + "(1)", `"` + name + `"(1)`, "pg_catalog." + name + "(1)", `"pg_catalog" . "` + name + `" (1)`,
			name + "/* a */(1)", name + " -- a\n (1)", "1 from " + name + "(1)", "x." + name + " from t x", "1 -- " + name, "'" + name + "'"} {
			for _, text := range []string{"select " + spelt, "with a as materialized (select " + spelt + "\n) select 1 as item from a"} {
				if found, _ := list.find(text); (found == name) == slices.Contains(harmless, name) {
					t.Errorf("%s: found %q", text, found)
				}
			}
		}
	}
	ofExtensions := names(t, db, `select distinct proname from pg_proc p join pg_depend d on d.objid = p.oid and d.classid = 'pg_proc'::regclass and d.deptype = 'e'
		where provolatile = 'v' and pronamespace <> 11`+callable)
	if len(ofExtensions) < 20 {
		t.Skipf("the server's extensions have only %d volatile functions", len(ofExtensions))
	}
	for _, name := range ofExtensions {
		for _, spelt := range []string{name + "(1)", strings.ToUpper(name) + " (1)", `public."` + name + "\" /* a */ -- b\n(1)"} {
			if found, _ := list.find("select " + spelt); (found == name) == slices.Contains(harmless, name) {
				t.Errorf("%s: found %q", spelt, found)
			}
		}
		if found, _ := list.find("select " + name + " as " + name + ", '" + name + "' from " + name + " order by " + name); found != "" {
			t.Errorf("%s is no call, but is refused", name)
		}
	}
	for _, name := range []string{"system", "bernoulli", "system_rows", "count", "now", "lower", "current_setting"} {
		if found, _ := list.find("select " + name + " (1)"); found != "" {
			t.Errorf("%s is refused", name)
		}
	}
}

// A function of an extension that takes a row can be called without a bracket, as if it were a column.
func TestCallsThatLookLikeColumnsAreRefused(t *testing.T) {
	t.Parallel()
	q, db := confined(t)
	execute(t, db, `create table loan as select 1 as id;
		create function wipe(loan) returns integer language sql volatile as 'select 1';
		create function note(loan) returns integer language sql stable as 'select 1'`)
	query := func(name string) assign.Query {
		return assign.Query("select l." + name + " as item from loan l")
	}
	for _, name := range []string{"wipe", "note"} {
		if err := q.TryQuery(t.Context(), query(name)); err != nil {
			t.Errorf("the bank's own: %v", err)
		}
	}
	execute(t, db, `alter extension plpgsql add function wipe(loan); alter extension plpgsql add function note(loan)`)
	db.Reset()
	if err := q.TryQuery(t.Context(), query("wipe")); !assign.IsRefusal(err, assign.QueryRefused) {
		t.Errorf("an extension's: %v", err)
	}
	if err := q.TryQuery(t.Context(), query("note")); err != nil {
		t.Errorf("an extension's that only reads: %v", err)
	}
}

// The list is the server's own at the time: a new connection reads it, and an old one reads it again after a while.
func TestTheListFollowsTheServer(t *testing.T) {
	t.Parallel()
	q, db := confined(t)
	execute(t, db, `create function ping() returns integer language sql volatile as 'select 1'`)
	refused := func() bool {
		t.Helper()
		err := q.TryQuery(t.Context(), `select ping() as item`)
		if err != nil && !assign.IsRefusal(err, assign.QueryRefused) {
			t.Fatal(err)
		}
		return err != nil
	}
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	admitted := func() bool { return q.admit(t.Context(), tx, "query", `select ping() as item`) == nil }
	if refused() || !admitted() {
		t.Fatal("the bank's own function is refused")
	}
	execute(t, db, `alter extension plpgsql add function ping()`)
	if !admitted() {
		t.Error("the list is read for each query")
	}
	kept := conn.Conn().PgConn().CustomData()
	old := kept[listedKey].(listed)
	kept[listedKey] = listed{old.names, time.Now()}
	if admitted() {
		t.Error("the list is not read again")
	}
	db.Reset()
	if !refused() {
		t.Error("a new connection does not read the list")
	}
	var locks int
	if err := tx.QueryRow(t.Context(), `select count(*) from pg_locks where pid = pg_backend_pid() and relation in ('pg_proc'::regclass, 'pg_depend'::regclass)`).Scan(&locks); err != nil || locks != 0 {
		t.Errorf("the transaction keeps %d locks on the catalog (%v)", locks, err)
	}
}

// The refusal names the function, its place, and what to do; of the recheck, too.
func TestTheRefusalSaysWhatToDo(t *testing.T) {
	t.Parallel()
	q, db := confined(t)
	for text, want := range map[assign.Query]string{
		"select 'ä' as item, Set_Config('role', 'none', true)": `^a query must not name set_config, not even in .* leave it out, .* at position 21 of the query$`,
		"  select 1 as item -- U&\"\\0041\"":                   `^a query must not contain u&", .* as it is; it stands at position 23 of the query$`,
		"select U&\"\\0073et_config\"('role', 'none', true)":   `at position 8 of the query$`,
	} {
		err := q.TryQuery(t.Context(), text)
		if !assign.IsRefusal(err, assign.QueryRefused) || !regexp.MustCompile(want).MatchString(strings.TrimPrefix(err.Error(), "query-refused: ")) {
			t.Errorf("%s: %v", text, err)
		}
	}
	err := q.TryRecheck(t.Context(), "select item from unnest($1::text[]) item where pg_sleep(9) is null")
	if !assign.IsRefusal(err, assign.QueryRefused) || !strings.HasSuffix(err.Error(), "at position 48 of the recheck") {
		t.Error(err)
	}
	open := New(Config{DB: pg.Router{Calls: db, Own: db}, Runs: db, SQL: func(s string) string { return s }})
	if err := open.TryQuery(t.Context(), "select 1 as item, pg_sleep(0)"); err != nil {
		t.Errorf("not confined: %v", err)
	}
}

// Planning executes calls of functions that are marked as immutable, so a refused text is not even planned.
func TestARefusedTextIsNotPlanned(t *testing.T) {
	t.Parallel()
	q, db := confined(t)
	execute(t, db, `create function fail() returns integer language plpgsql immutable as $$ begin raise 'planned'; end $$`)
	if err := q.TryQuery(t.Context(), "select fail() as item"); err == nil || !strings.Contains(err.Error(), "planned") {
		t.Fatal(err)
	}
	if err := q.TryQuery(t.Context(), "select fail() as item -- pg_sleep"); err == nil || strings.Contains(err.Error(), "planned") {
		t.Error(err)
	}
}

// What disguised makes is a call for PostgreSQL: the fuzz test would otherwise prove little.
func TestDisguisesAreCalls(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	_, db := confined(t)
	list := listOf(t, db)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	r := rand.New(rand.NewPCG(1, 2))
	calls := 0
	const tries = 400
	for range tries {
		text := dressed(disguised("pg_is_in_recovery", r.IntN), r.IntN)
		if name, _ := list.find(text); name != "pg_is_in_recovery" {
			t.Errorf("found %q: %s", name, text)
		}
		if _, err := conn.Conn().PgConn().Prepare(t.Context(), "", text, nil); err == nil || strings.Contains(err.Error(), "pg_is_in_recovery") || strings.Contains(err.Error(), "boolean") {
			calls++ // also if only its type is wrong there
		}
	}
	if calls < tries*9/10 {
		t.Errorf("only %d of %d are calls", calls, tries)
	}
}

var bracketed = regexp.MustCompile(`(?i)\b(system|read|send|archive|schedule|lock|notify) *\(`)

// Queries as banks have them are not refused, though they use the names of functions of extensions for columns, tables and
// text. With such an extension, those are refused that have a bracket behind the name.
func TestQueriesOfABankAreAdmitted(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	q, db := confined(t)
	tables, err := os.ReadFile("testdata/bank.sql")
	if err != nil {
		t.Fatal(err)
	}
	queries, err := os.ReadFile("testdata/queries.sql")
	if err != nil {
		t.Fatal(err)
	}
	makeExtensions(t, db)
	execute(t, db, string(tables))
	all := strings.SplitAfter(string(queries), ";\n")
	if all = all[:len(all)-1]; len(all) < 200 {
		t.Fatalf("only %d queries", len(all))
	}
	for _, query := range all {
		if err := q.TryQuery(t.Context(), assign.Query(query)); err != nil {
			t.Errorf("%s%v", query, err)
		}
	}
	for _, name := range []string{"system", "read", "send", "archive", "schedule", "lock", "notify"} {
		execute(t, db, fmt.Sprintf(`create schema %[1]s_; create function %[1]s_.%[1]s(text) returns void language sql volatile as ''; alter extension plpgsql add function %[1]s_.%[1]s(text)`, name))
	}
	list, refused := listOf(t, db), 0
	for _, query := range all {
		name, _ := list.find(query)
		if (name != "") != bracketed.MatchString(query) {
			t.Errorf("%sfound %q", query, name)
		}
		if name != "" {
			refused++
		}
	}
	if refused == 0 || refused > 12 {
		t.Errorf("%d are refused", refused)
	}
}
