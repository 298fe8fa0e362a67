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
	"unicode/utf8"

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

// sample is a list as a server could have it.
func sample() *forbidden {
	f := newForbidden()
	for _, name := range []string{"set_config", "query_to_xml", "pg_sleep", "pg_advisory_lock", "lo_export", "pg_is_in_recovery"} {
		f.add(name, true)
	}
	for _, name := range []string{"dblink", "schedule", "send", "read", "archive", "lock", "notify", "Mixed", "größe", `a"b`, "x$y", strings.Repeat("n", nameLimit)} {
		f.add(name, false)
	}
	return f
}

func TestForbiddenNamesAreFound(t *testing.T) {
	t.Parallel()
	f := sample()
	for text, want := range map[string]string{
		`select set_config('role', 'none', true) as item`:             "set_config",
		`select SET_Config ('role', 'none', true)`:                    "set_config",
		`select "set_config"('role', 'none', true)`:                   "set_config",
		`select pg_catalog . "set_config" /* a */ ('role')`:           "set_config",
		`select x.set_config from t x`:                                "set_config",
		"select 1 -- set_config":                                      "set_config",
		`select 'set_config'`:                                         "set_config",
		`select $$set_config$$, $set_config$ $set_config$`:            "set_config",
		`select E'\tset_config'`:                                      "", // the t is a letter before it: text that nobody executes
		`select U&"\0073et_config"('role', 'none', true)`:             disguise,
		`select u&"!0073et_config" uescape '!' ('role')`:              disguise,
		`select U&'\0073'`:                                            "",
		`select a &"b" from t`:                                        "",
		`select set_configs, _set_config, set_config_, xset_config`:   "",
		`select 1pg_sleep(1)`:                                         "pg_sleep",
		`select 1e5pg_sleep(1), 0x1f`:                                 "pg_sleep",
		`select loan_1pg_sleep`:                                       "",
		`select 1`:                                                    "",
		``:                                                            "",
		`select SET_CONFİG('a')`:                                      "set_config", // in a Turkish database
		`select äpg_sleep(1)`:                                         "pg_sleep",   // more than PostgreSQL would call
		`select dblink('')`:                                           "dblink",
		"select public.\"dblink\" \n\t /* a /* b */ ( */ -- c\n ('')": "dblink",
		"select dblink--\r(1)":                                        "dblink",
		"select dblink/*/ ( */(1)":                                    "dblink",
		`select dblink, schedule from send order by read`:             "",
		`select l.archive - (1) from l`:                               "",
		`select archive / (2)`:                                        "",
		`select 'schedule' || (x)`:                                    "",
		`select schedule /* (1)`:                                      "",
		`select schedule -- (1)`:                                      "",
		`select mixed(1), "Mixed"(2)`:                                 "mixed",
		`select GRÖßE(1)`:                                             "größe",
		`select größe from t`:                                         "",
		`select größen(1)`:                                            "",
		`select "a""b"(1)`:                                            `a""b`,
		`select x$Y (1)`:                                              "x$y",
		`select crosstab('select 1')`:                                 "crosstab",
		`select * from CrossTab4 ('select 1') t`:                      "crosstab4",
		`select connectby(''), xpath_table('')`:                       "connectby",
		`select pgr_dijkstra('select 1', 1, 2)`:                       "pgr_dijkstra",
		`select crosstab, pgr_cost as cypher from connectby`:          "",
		`select ` + strings.Repeat("n", nameLimit+9) + `(1)`:          strings.Repeat("n", nameLimit),
		`select ` + strings.Repeat("n", nameLimit-1) + `(1)`:          "",
		`select dblink(1), u&"x"`:                                     "dblink", // the first
	} {
		got, before := f.find(text)
		if got != want {
			t.Errorf("%s: found %q, want %q", text, got, want)
		}
		if want == "" {
			continue
		}
		folded := strings.Map(fold, text)
		if at := utf8.RuneCountInString(folded[:strings.Index(folded, want)]); before != at {
			t.Errorf("%s: at %d, want %d", text, before, at)
		}
	}
}

// A text in which every name has all the rest as its comment takes no longer for it. It is refused.
func TestFindingTakesLinearTime(t *testing.T) {
	t.Parallel()
	f := sample()
	for _, text := range []string{strings.Repeat("send/*", 80_000), strings.Repeat("send--", 80_000), strings.Repeat("1a", 250_000), strings.Repeat("größe ", 60_000) + strings.Repeat("größe/*", 60_000),
		strings.Repeat("send"+strings.Repeat(" ", 500), 1000), "1" + strings.Repeat("send", 100_000), strings.Repeat(`u&"`, 150_000)} {
		began := time.Now()
		f.find(text)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%.20s… takes %s", text, took)
		}
	}
	if name, _ := f.find(strings.Repeat("send/*", 80_000)); name != "send" {
		t.Error("a text that is too much to read is let through")
	}
	if name, _ := f.find(strings.Repeat("send /* not a call */, ", 5000)); name != "" {
		t.Errorf("%s is called, the many comments say", name)
	}
}

// disguised writes a call of a function as chance has it, in a way that PostgreSQL takes for a call. next returns a number
// from 0 to n-1.
func disguised(name string, next func(n int) int) string {
	var b strings.Builder
	gap := func() {
		for range next(4) {
			b.WriteString([]string{" ", "\t", "\n", "\r\n", "\f", "/**/", "/* a ( */", "/* /* b */ */", "--\n", "-- c (\n", "/*/ d */", "/***/", "/* -- */", "-- /*\n", "/* ' \" $$ */"}[next(15)])
		}
	}
	word := func(name string) {
		if next(2) == 0 {
			b.WriteString(`"` + name + `"`)
			return
		}
		for _, c := range name {
			s := string(c)
			if next(2) == 0 {
				s = strings.ToUpper(s)
			}
			b.WriteString(s)
		}
	}
	if next(2) == 0 {
		word("pg_catalog")
		gap()
		b.WriteByte('.')
		gap()
	}
	word(name)
	gap()
	b.WriteByte('(')
	gap()
	return b.String()
}

// dressed puts a call, which lacks its closing bracket, into a query.
func dressed(call string, next func(n int) int) string {
	call += ")"
	return fmt.Sprintf([]string{
		"select %s as item",
		"select 1+%s::int as item",
		"with a as materialized (select %s) select 1 as item",
		"with a(b)as(select 1)select 1 as item from a where %s",
		"select 'it''s' as item, case when %s then $a$x$a$else''end",
		"select 1 as item from %s",
		"select(select %s)as item",
		"select*from(values(%s))as v(item)",
		"select 1 as item order by %s",
		"select array[%s]as item",
		"select E'\\''||%s as item",
		"select '/*'||%s||'*/'as item",
		"select $$--$$||%s as item",
		"select \"a\".item from(select %s as item)\"a\"",
		"select 1 as item /* -- */ where not %s --",
	}[next(15)], call)
}

// chance returns numbers that bytes decide, and 0 when they are used up.
func chance(of []byte) func(n int) int {
	return func(n int) int {
		if len(of) == 0 {
			return 0
		}
		var c byte
		c, of = of[0], of[1:]
		return int(c) % n
	}
}

// However a call is written, and whatever stands around it, it is found. Whatever a text is, finding ends, and the place that
// it names is in the text.
func FuzzBoundary(f *testing.F) {
	f.Add("select 1", []byte("any"), "")
	f.Add("/* '", []byte{}, "' */")
	f.Add(`u&"`, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, "\xff(")
	for i := range uint64(20) {
		r := rand.New(rand.NewPCG(i, 1))
		b := make([]byte, 40)
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		f.Add(" ", b, " ")
	}
	list := sample()
	names := []string{"set_config", "query_to_xml", "pg_sleep", "dblink", "schedule", "send", "crosstab", "crosstab3", "pgr_dijkstra", "connectby"}
	f.Fuzz(func(t *testing.T, before string, how []byte, after string) {
		next := chance(how)
		call := dressed(disguised(names[next(len(names))], next), next)
		if name, _ := list.find(call); name == "" {
			t.Errorf("not found: %s", call)
		}
		// What stands before it can continue a word, or read the call as text: PostgreSQL then calls nothing.
		if name, at := list.find(before + "\n" + call + after); name == "" || at > utf8.RuneCountInString(before+call+after)+1 {
			t.Errorf("found %q at %d of %q %q %q", name, at, before, call, after)
		}
		for _, text := range []string{before, after, string(how), before + after} {
			if name, at := list.find(text); name == "" && at != 0 || at > utf8.RuneCountInString(text) {
				t.Errorf("found %q at %d of %q", name, at, text)
			}
		}
	})
}
