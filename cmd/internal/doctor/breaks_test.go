package doctor

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/schema/schematest"
)

// What the tables, their indexes and the vacuum lack.
func TestStorageChecks(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	w := admit(t)
	for _, b := range []broken{
		{check: "schema", sql: "update getwork.version set version = version + 1", state: Error, says: "knows up to"},
		{check: "indexes", state: Skipped, says: "this program's version"},
		{check: "schema", sql: "update getwork.version set version = -1", state: Warning, says: "at version -1"},
		{check: "schema", args: []string{"--no-migrate"}, state: Error, says: "nodes don't migrate", mend: "update getwork.version set version = " + latest(w)},
		{check: "invalid-indexes", sql: "update pg_index set indisvalid = false where indexrelid = 'getwork.run_history'::regclass", state: Error, says: "run_history is not valid", mend: "advice"},
		{check: "indexes", sql: "drop index getwork.work_held_slot", state: Error, says: "work_held_slot is missing", mend: "advice"},
		{check: "indexes", sql: "create index mine on getwork.work (note)", state: Warning, says: "mine is none of getwork's", mend: "advice"},
		{check: "indexes", sql: "drop index getwork.run_history; create index run_history on getwork.run (id)", state: Warning, says: "run_history is another", mend: "drop index getwork.run_history; create index run_history on getwork.run (task_id, id)"},
		{check: "indexes", args: []string{"--database-url", w.url + "&standard_conforming_strings=off"}, state: OK, says: "are there"},
		{check: "definitions", state: OK, says: "as the migrations make them"},
		{check: "definitions", sql: "alter table getwork.candidate set unlogged", state: Error, says: "the table candidate is unlogged", mend: "advice"},
		{check: "definitions", sql: "alter table getwork.work drop constraint work_slot_check", state: Error, says: "constraint work.work_slot_check is missing", mend: "advice"},
		{check: "definitions", sql: "alter table getwork.work drop constraint work_slot_check, add constraint work_slot_check check (slot >= 0)", state: Error, says: "work.work_slot_check is another", mend: "advice"},
		{check: "definitions", sql: "alter table getwork.work add constraint mine check (slot < 7)", state: Warning, says: "work.mine is none of getwork's: CHECK ((slot < 7))", mend: "alter table getwork.work drop constraint mine"},
		{check: "definitions", sql: "alter table getwork.work alter item drop not null", state: Error, says: "column work.item is another than getwork makes: text", mend: "alter table getwork.work alter item set not null"},
		{check: "definitions", sql: "alter table getwork.work alter attempt drop default", state: Error, says: "column work.attempt is another", mend: "alter table getwork.work alter attempt set default 1"},
		{check: "definitions", sql: "drop trigger audit_kept on getwork.audit", state: Error, says: "trigger audit.audit_kept is missing", mend: "advice"},
		{check: "definitions", sql: "alter table getwork.audit disable trigger audit_kept", state: Error, says: "trigger audit.audit_kept is another", mend: "advice"},
		{check: "definitions", sql: "create or replace function getwork.candidate_bucket(item text) returns int language sql immutable parallel safe as 'select 1'", state: Error, says: "function candidate_bucket(item text) is another"},
		{check: "ids", sql: "insert into getwork.task overriding system value values (70)", state: Error, says: "the ids of task go on from 0, and there is 70", mend: "select setval(pg_get_serial_sequence('getwork.task', 'id'), 70)"},
		{check: "ids", sql: "insert into getwork.hook_event (id, hook_id, task_id, type, body) overriding system value values (70, 1, 1, 'run.failed', '{}')", state: Error, says: "the ids of hook_event go on from 0, and there is 70", mend: "delete from getwork.hook_event"},
		{check: "ids", sql: "insert into getwork.principal (id, name, name_key, iss, sub, kind) overriding system value values (70, 'ann', 'ann', 'idp', '1', 'person')", state: Error, says: "the ids of principal go on from 0, and there is 70", mend: "delete from getwork.principal"},
		{check: "autovacuum", sql: "alter table getwork.work set (autovacuum_enabled = off)", state: Warning, says: "switched off for work", mend: "advice"},
		{check: "transaction-ids", limits: func(l *limits) { l.ids = 0 }, state: Warning, says: "the oldest transaction id of database"},
		{check: "transaction-ids", limits: func(l *limits) { l.ids, l.idsEnd = 0, 0 }, state: Error, says: "PostgreSQL stops"},
		{check: "slots", sql: "select pg_create_physical_replication_slot('ROLE', true)", state: Warning, says: "nobody reads the replication slot ROLE"},
		{check: "slots", limits: func(l *limits) { l.retained = -1 }, state: Error, says: "until the disk is full", mend: "select pg_drop_replication_slot('ROLE')"},
		{check: "disk", state: Skipped, says: "can't be seen from here"},
		{check: "disk", args: []string{"--database-url", w.superuser}, limits: func(l *limits) { l.free = 10 }, state: Error, says: "are free"},
		{check: "disk", args: []string{"--database-url", w.superuser}, limits: func(l *limits) { l.free = 1.01 }, state: Warning, says: "are free"},
		{check: "durability", state: Error, says: "fsync is off"}, // as tests need it
		{check: "durability", state: Error, says: "full_page_writes is off"},
		{check: "durability", state: Error, says: "synchronous_commit is off"},
	} {
		w.expect(b)
	}

	// A session's statistics are written when it ends, at the latest: a moment after it was closed here.
	other, err := pgx.Connect(t.Context(), w.superuser)
	if err != nil {
		t.Fatal(err)
	}
	// Autovacuum would take the dead rows away.
	if _, err := other.Exec(t.Context(), `alter table getwork.task set (autovacuum_enabled = off); insert into getwork.task overriding system value select 100 + i from generate_series(1, 300) i; delete from getwork.task`); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), `alter table getwork.hook_event set (autovacuum_enabled = off); insert into getwork.hook_event (hook_id, task_id, type, body) select 1, 1, 'run.failed', '{}' from generate_series(1, 26500); delete from getwork.hook_event where id > 20000`); err != nil {
		t.Fatal(err)
	}
	_ = other.Close(t.Context())
	idle, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close(t.Context())
	if _, err := idle.Exec(t.Context(), `do $$ begin
		for i in 1 .. 1000 loop
			perform pg_stat_clear_snapshot();
			if (select n_dead_tup from pg_stat_user_tables where relid = 'getwork.task'::regclass) >= 300
				and (select n_dead_tup from pg_stat_user_tables where relid = 'getwork.hook_event'::regclass) >= 6500 then return; end if;
			perform pg_sleep(0.02);
		end loop;
		raise 'the dead rows are not counted';
	end $$`); err != nil {
		t.Fatal(err)
	}
	few := func(l *limits) { l.dead = 100 }
	w.expect(broken{check: "bloat", limits: few, state: Warning, says: "task has 30"})
	// One more if the row of the check of ids is counted by now.
	w.expect(broken{check: "bloat", limits: few, state: Warning, says: "hook_event has 650"})
	w.expect(broken{check: "bloat", limits: few, state: Warning, says: "dead rows beside 2000"})
	w.expect(broken{check: "bloat", sql: "alter table getwork.task reset (autovacuum_enabled)", state: OK, says: "no table"})

	// A transaction of another session of the login.
	if _, err := idle.Exec(t.Context(), `begin; select 1`); err != nil {
		t.Fatal(err)
	}
	w.expect(broken{check: "old-transactions", limits: func(l *limits) { l.transaction = 0 }, state: Warning, says: "in a transaction for"})
	w.expect(broken{check: "old-transactions", state: OK, says: "older than 1h"})
}

func latest(w *ward) (version string) {
	w.t.Helper()
	if err := w.admin.QueryRow(w.t.Context(), `select version::text from getwork.version`).Scan(&version); err != nil {
		w.t.Fatal(err)
	}
	return version
}

// What logins and roles may do, and what they may not.
func TestRightsChecks(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	w := admit(t)
	strict := []string{"--auth", "token", "--public-url", "http://127.0.0.1:8080", "--trust-query-writers"}
	reader := []string{"--query-database-url", w.reader}
	for _, b := range []broken{
		{check: "login", sql: "alter role LOGIN createrole", state: Warning, says: "may make roles; without --auth dev"},
		{check: "login", args: strict, state: Error, says: "the login LOGIN of --database-url may make roles", mend: "advice"},
		{check: "login", args: []string{"--listen-database-url", w.superuser}, state: Warning, says: "of --listen-database-url is a superuser"},
		{check: "login", sql: "create schema authorization LOGIN", args: []string{"--query-role", ""}, state: Warning, says: "the login and a schema are both called LOGIN", mend: "alter role LOGIN set search_path = public"},
		{check: "login", args: []string{"--query-role", ""}, state: OK, says: "has no right"},
		{check: "privileges", sql: "revoke insert, update on getwork.work from LOGIN", state: Error, says: "may not insert, update: work", mend: "grant insert, update on getwork.work to LOGIN"},
		{check: "privileges", sql: "revoke all on getwork.audit from LOGIN", state: Error, says: "may not select, insert: audit", mend: "advice"},
		{check: "privileges", sql: "revoke all on getwork.audit_head from LOGIN", state: Error, says: "may not select, update: audit_head", mend: "advice"},
		{check: "privileges", sql: "revoke usage on sequence getwork.round from LOGIN", state: Error, says: "may not use sequences: round", mend: "advice"},
		{check: "privileges", sql: "revoke usage on all sequences in schema getwork from LOGIN", state: Error, says: "may not use sequences: absence_id_seq", mend: "advice"},

		{check: "query-role", args: []string{"--query-role", ""}, state: Warning, says: "with all rights of getwork's own login"},
		{check: "query-role", args: []string{"--query-role", "nobody_here"}, state: Error, says: "the role nobody_here does not exist"},
		{check: "query-role", args: reader, state: OK, says: "reads the schema bank"},
		{check: "query-role", sql: "revoke ROLE from LOGIN", state: Error, says: "LOGIN can't become the role ROLE", mend: "grant ROLE to LOGIN"},
		{check: "query-role", sql: "revoke select on getwork.blocked from ROLE", state: Warning, says: "may not read getwork.blocked", mend: "grant select on getwork.blocked to ROLE"},
		{check: "query-role", sql: "grant delete on bank.loan to ROLE", state: Warning, says: "ROLE may change bank.loan", mend: "revoke delete on bank.loan from ROLE"},
		{check: "query-role", sql: "grant select (user_name) on getwork.work to ROLE", state: Warning, says: "may read getwork.work: every ranking query sees other people's work", mend: "revoke select (user_name) on getwork.work from ROLE"},
		{check: "query-role", sql: "revoke select on bank.loan from ROLE", state: Warning, says: "may read no table", mend: "grant select on bank.loan to ROLE"},

		{check: "query-login", state: Skipped, says: "there is no --query-database-url"},
		{check: "query-login", args: reader, state: OK, says: "READER reads the schema bank, and changes nothing"},
		{check: "query-login", args: reader, sql: "grant update on bank.loan to READER", state: Warning, says: "may change bank.loan"},
		{check: "query-login", args: reader, sql: "revoke update on bank.loan from READER; grant usage on schema getwork to READER; grant select on getwork.session to READER", state: Warning, says: "may read getwork.session"},
		{check: "query-login", args: reader, sql: "create schema authorization READER", state: Warning, says: "the login and a schema are both called READER"},
		{check: "query-login", args: []string{"--query-database-url", w.reader, "--auth", "token", "--public-url", "http://127.0.0.1:8080"}, state: Error, says: "may read getwork.session"},
		{check: "query-login", args: reader, sql: "revoke select on getwork.session from READER; alter role READER superuser", state: Warning, says: "READER of --query-database-url is a superuser"},
		{check: "query-database", args: []string{"--query-database-url", w.reader + "&connect_timeout=1&port=1"}, state: Error, says: "can't be reached"},
		{check: "query-role", args: []string{"--query-role", "", "--query-database-url", w.reader}, state: Skipped, says: "a login of their own"},

		{check: "public-functions", sql: "create function bank.pay() returns int language sql security definer as 'select 1'; grant usage on schema bank to public", state: Warning, says: "everybody may execute bank.pay()", mend: "advice"},
		{check: "public-functions", sql: "create function bank.hash() returns text language sql security definer as 'select 1::text'; revoke execute on function bank.hash() from public; grant execute on function bank.hash() to ROLE", state: Warning, says: "ROLE may execute bank.hash()", mend: "advice"},
		{check: "public-functions", args: reader, sql: "alter role READER nosuperuser; grant execute on function bank.hash() to READER", state: Warning, says: "READER may execute bank.hash()", mend: "advice"},
		{check: "schema", sql: "drop schema getwork cascade", state: Warning, says: "there is no schema getwork yet"},
		{check: "schema", sql: "create schema getwork; grant usage on schema getwork to LOGIN; create table getwork.schema_version ()", state: Error, says: "were made before getwork 0.1"},
		{check: "schema", sql: `drop schema getwork cascade; alter database "DATABASE" owner to current_user`, state: Error, says: "the login may not make it"},
	} {
		w.expect(b)
	}
}

// What docs/security.md grants to a login that does not own the tables is what a node needs, and leaves the audit alone.
func TestGrantedLogin(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	text, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, grants, _ := strings.Cut(string(text), "```sql\n  begin;\n")
	grants, _, found := strings.Cut(grants, "commit;\n  ```")
	if !found || strings.Count(grants, "to node_login;") < 5 {
		t.Fatal("docs/security.md has no grants to node_login any more")
	}
	w := admit(t)
	w.execute(strings.ReplaceAll(grants, "node_login", "READER"))
	args := []string{"--database-url", w.reader, "--listen-database-url", w.url}
	for _, check := range []string{"schema", "login", "privileges", "ids", "webhooks"} {
		w.expect(broken{check: check, args: args, state: OK})
	}
	var may string
	const could = `select coalesce(string_agg(t || ': ' || p, ', '), '') from (values ('audit', 'update'), ('audit', 'delete'), ('audit', 'truncate'), ('audit_head', 'insert'), ('audit_head', 'delete'),
('audit_head', 'truncate'), ('version', 'update')) v (t, p) where has_table_privilege($1, 'getwork.' || t, p)`
	if err := w.admin.QueryRow(t.Context(), could, w.reads).Scan(&may); err != nil || may != "" {
		t.Errorf("the login may %s: %v", may, err)
	}
	w.expect(broken{check: "privileges", args: args, sql: "revoke usage on sequence getwork.item_id_seq from READER", state: Error, says: "READER may not use sequences: item_id_seq"})
}

// Settings of the database, the login or the URL.
func TestSettingsChecks(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	w := admit(t)
	with := func(settings string) []string { return []string{"--database-url", w.url + "&" + settings} }
	for _, b := range []broken{
		{check: "time-outs", sql: `alter database "DATABASE" set statement_timeout = '5s'`, state: OK, says: "none"}, // the node overrides it
		{check: "time-outs", args: with("statement_timeout=5000"), state: Error, says: "statement_timeout = 5s on --database-url interrupts"},
		{check: "time-outs", args: with("statement_timeout=3600000"), state: Warning, says: "statement_timeout = 1h"},
		{check: "time-outs", args: with("idle_session_timeout=60000"), state: Warning, says: "idle_session_timeout = 1m"},
		{check: "time-outs", args: with("lock_timeout=100"), state: Warning, says: "lock_timeout = 100ms"},
		{check: "session-settings", sql: `alter database "DATABASE" set enable_indexscan = off`, state: Warning, says: "enable_indexscan = off", mend: `alter database "DATABASE" reset enable_indexscan`},
		{check: "session-settings", sql: `alter database "DATABASE" set session_replication_role = replica`, state: Error, says: "session_replication_role = replica", mend: `alter database "DATABASE" reset session_replication_role`},
		{check: "session-settings", sql: `alter database "DATABASE" set array_nulls = off`, state: Warning, says: "array_nulls = off", mend: `alter database "DATABASE" reset array_nulls`},
		{check: "session-settings", sql: `alter role LOGIN set role = ROLE`, state: Warning, says: "LOGIN works as the role ROLE", mend: "alter role LOGIN reset role"},
		{check: "connections", args: []string{"--nodes", "100"}, state: Error, says: "100 nodes with up to 18 connections need 1800; the server has room for"},
		{check: "connections", sql: `alter database "DATABASE" connection limit 17`, state: Error, says: "the login or the database may have 17", mend: `alter database "DATABASE" connection limit -1`},
		{check: "connections", args: []string{"--query-database-url", w.reader, "--max-runs", "5"}, state: OK, says: "1 node with up to 27 connections need 27"},
		{check: "listen", args: []string{"--listen-database-url", schematest.Empty(t)}, state: Error, says: "is not heard"},
		{check: "listen", args: []string{"--no-listen"}, state: Skipped, says: "nodes poll"},
		{check: "direct", args: []string{"--listen-database-url", w.url}, state: OK, says: "PostgreSQL itself"},
		{check: "pooler", args: []string{"--pooled", "--no-listen"}, state: Warning, says: "--pooled is given, but"},
		{check: "database", args: with("port=1"), state: Error, says: "--database-url can't be reached"},
		{check: "database", limits: func(l *limits) { l.trip = 0 }, state: Warning, says: "answers in"},
		{check: "version", args: with("port=1"), state: Skipped, says: "the database was not reached"},
		{check: "tls", args: []string{"--database-url", strings.Replace(w.url, "host=", "host=%2Fnowhere,db.bank.example,", 1) + "&connect_timeout=1"}, state: Warning, says: "nothing proves that db.bank.example of --database-url is the database"},
		{check: "tls", args: with("target_session_attrs=any"), state: OK, says: "on this machine"},
		{check: "keepalives", state: Skipped, says: "a socket of this machine"},
		{check: "encoding", state: OK, says: "UTF8"},
		{check: "encoding", args: []string{"--database-url", schematest.Encoded(t, "LATIN1")}, state: Warning, says: "LATIN1"},
		{check: "client-check", state: OK, says: "within half a second"},
		{check: "clock", sql: `alter database "DATABASE" set datestyle = 'SQL, DMY'`, state: OK, says: "agrees", mend: `alter database "DATABASE" reset datestyle`},
		{check: "clock", limits: func(l *limits) { l.clock = -time.Hour }, state: Error, says: "the database's clock is"},
	} {
		w.expect(b)
	}

	// A listener that stays in a transaction keeps the queue from being emptied.
	listener, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(t.Context())
	for _, sql := range []string{"listen x", "begin", "select 1"} {
		if _, err := listener.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	w.execute("select pg_notify('x', repeat(i::text, 3500)) from generate_series(10, 30) i")
	w.expect(broken{check: "notify-queue", limits: func(l *limits) { l.queue = 1e-9 }, state: Error, says: "% full"})
	w.expect(broken{check: "notify-queue", state: OK, says: "% full"})
}

// What this machine's PostgreSQL can't be made to do is shown to the functions that judge it.
func TestJudgements(t *testing.T) {
	t.Parallel()
	if f := versionFinding(130012, "13.12"); f.State != Error || !strings.Contains(f.Found, "13.12 is too old") {
		t.Errorf("PostgreSQL 13: %+v", f)
	}
	if f := clientCheckFinding(&pgconn.PgError{Message: "client_connection_check_interval must be set to 0 on this platform"}); f.State != Warning || f.Advice == "" {
		t.Errorf("a server that can't watch its clients: %+v", f)
	}
	if f := clientCheckFinding(errors.New("gone")); f.State != Error {
		t.Errorf("no answer: %+v", f)
	}
	for ms, state := range map[int64]State{60_000: Error, 7_200_000: Warning} { // from PostgreSQL 17 on
		if f := timeoutFindings([]timeout{{"transaction_timeout", ms}}, 10*time.Minute, "--query-database-url"); len(f) != 1 || f[0].State != state || !strings.Contains(f[0].Found, "on --query-database-url ends") {
			t.Errorf("transaction_timeout = %d: %+v, want %s", ms, f, state)
		}
	}
	x := &examination{limits: usual}
	if f, _ := x.roomFinding(roomFor{Max: 100, Reserved: 3, Login: -1, Database: -1, Others: 90}, 1, 17, ""); len(f) != 1 || f[0].State != Warning || !strings.Contains(f[0].Found, "others have 90 now") {
		t.Errorf("a crowded server: %+v", f)
	}
	for by, state := range map[time.Duration]State{time.Second: OK, 3 * time.Second: Warning, -30 * time.Second: Error} {
		if f := x.clockFinding("it", by, 0); f.State != state {
			t.Errorf("a clock that is off by %s: %+v, want %s", by, f, state)
		}
	}
	if got := size(3 << 30); got != "3 GiB" || size(12) != "12 B" {
		t.Errorf("3 GiB are %q, 12 bytes %q", got, size(12))
	}
}

// Each check has a test that breaks it: a case of the tables above or a call of expect, or, where no server here can be so wrong, a
// judgement of what it would say.
func TestEachCheckIsBroken(t *testing.T) {
	t.Parallel()
	judged := map[string]string{"version": "versionFinding", "client-check": "clientCheckFinding"}
	broken, calls := brokenByTests(t)
	for _, c := range checks {
		if by := judged[c.name]; by != "" && calls[by] {
			continue
		}
		if !broken[c.name] {
			t.Errorf("no test breaks the check %s: add a case that expects a warning or an error", c.name)
		}
	}
}

// brokenByTests returns the checks that a case of a test finds broken, and the functions that TestJudgements calls.
func brokenByTests(t *testing.T) (found, judges map[string]bool) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found, judges = map[string]bool{}, map[string]bool{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			f, isFunc := d.(*ast.FuncDecl)
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					fields := fieldsOf(n)
					if name, err := strconv.Unquote(fields["check"]); err == nil && (fields["state"] == "Warning" || fields["state"] == "Error") {
						found[name] = true
					}
				case *ast.CallExpr:
					if name, is := n.Fun.(*ast.Ident); is && isFunc && f.Name.Name == "TestJudgements" {
						judges[name.Name] = true
					}
				}
				return true
			})
		}
	}
	return found, judges
}

// fieldsOf returns the fields of a literal whose values are names or constants.
func fieldsOf(c *ast.CompositeLit) map[string]string {
	fields := map[string]string{}
	for _, e := range c.Elts {
		pair, is := e.(*ast.KeyValueExpr)
		if !is {
			continue
		}
		key, is := pair.Key.(*ast.Ident)
		if !is {
			continue
		}
		switch v := pair.Value.(type) {
		case *ast.Ident:
			fields[key.Name] = v.Name
		case *ast.BasicLit:
			fields[key.Name] = v.Value
		}
	}
	return fields
}
