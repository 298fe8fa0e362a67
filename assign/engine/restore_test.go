package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/postgres"
	"getwork/schema/schematest"
)

// tool runs one of PostgreSQL's programs.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	found, err := postgres.Find()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(found.Dir, name)
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(name); err != nil {
			t.Skipf("%v: on Debian, apt-get install postgresql-client", err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// restored makes an empty database on another server.
func restored(t *testing.T, server *postgres.Server) string {
	t.Helper()
	execute(t, pool(t, server.URL("postgres")), `create database restored`)
	return server.URL("restored")
}

// moves lets users work in one cluster, moves the tables into another, whose transaction ids are lower, and lets users go on
// there. Nothing that is done, held or put off may be handed out, the fresh shelf that came along costs one run, who waited
// waits on, and new people can come in.
func moves(t *testing.T, parameters map[string]string, next *postgres.Server, move func(from, to string)) {
	t.Helper()
	former := schematest.OwnServer(t, parameters)
	old := pool(t, former.URL("getwork"))
	execute(t, old, `create table loan (id integer primary key, verified boolean not null default false)`)
	execute(t, old, `insert into loan select generate_series(1, 9)`)
	execute(t, old, `do $$ begin for i in 1..20000 loop perform pg_current_xact_id(); commit; end loop; end $$`)
	execute(t, old, `insert into getwork.hook (url, events, secret, created_by) values ('https://receiver.example', '{work.assigned,work.closed}', '', 'ada')`)
	execute(t, old, `select getwork.switch_hooks()`)
	const comesIn = `insert into getwork.principal (name, name_key, iss, sub, kind) values ($1, $1, 'idp', $1, 'person')`
	execute(t, old, comesIn, "ann")
	n := startNode(t, former.URL("getwork"), nodeOptions{})
	newTask(t, n, "task", `select id as item from loan where not verified order by id`, func(s *assign.Settings) {
		s.FreshFor, s.MaxRequest = assign.Duration(time.Hour), 9
	})
	work := map[string]assign.Work{}
	first := n.endedRequest(t, n.click(t, "task", "1 is done", 1).ID)
	work["1 is done"] = first.Work[0]
	for _, user := range []string{"2 is held", "3 is put off", "4 is done later", "6 is done, too"} { // from the midst of the shelf
		w, _, err := n.Claim(t.Context(), "task", user[:1], assign.Who{Holder: assign.Holder{User: user}})
		if err != nil {
			t.Fatal(err)
		}
		work[user] = w
	}
	let := func(n *node, db *pgxpool.Pool, user string, d assign.Disposition) {
		t.Helper()
		if d.Outcome == "complete" {
			execute(t, db, `update loan set verified = true where id = $1`, user[:1])
		}
		if _, err := n.Dispose(t.Context(), work[user].ID, d, assign.Holder{User: user}, false); err != nil {
			t.Fatal(err)
		}
	}
	let(n, old, "1 is done", assign.Disposition{Outcome: "complete"})
	let(n, old, "6 is done, too", assign.Disposition{Outcome: "complete"})
	later := assign.Duration(4 * time.Hour)
	let(n, old, "3 is put off", assign.Disposition{Outcome: "return", After: &later})
	newInbox(t, n, "inbox", nil)
	waits := n.linger(t, "inbox", "waits", 1)
	n.stop()

	to := restored(t, next)
	move(former.URL("getwork"), to)
	db := pool(t, to)
	if !query[bool](t, db, `select pg_snapshot_xmax(pg_current_snapshot())::text::bigint < (select min(pg_snapshot_xmin(snapshot)::text::bigint) from getwork.run)`) {
		t.Fatal("the other cluster's transaction ids are not lower")
	}
	execute(t, db, comesIn, "somebody new")
	n = startNode(t, to, nodeOptions{})
	let(n, db, "4 is done later", assign.Disposition{Outcome: "complete"})
	if e, err := n.Explain(t.Context(), "task", "4"); err != nil || e.Matches {
		t.Errorf("what is done matches still: %+v, %v", e, err)
	}
	if _, _, err := n.Claim(t.Context(), "task", "4", assign.Who{Holder: assign.Holder{User: "claims"}}); !assign.IsRefusal(err, assign.NotFound) {
		t.Errorf("what is done is claimed: %v", err)
	}
	for _, want := range []string{"[5 7]", "[8 9]"} {
		r := n.endedRequest(t, n.click(t, "task", "goes on "+want, 2).ID)
		if got := fmt.Sprint(items(r)); got != want {
			t.Errorf("handed out %s, want %s", got, want)
		}
	}
	if runs := query[int](t, db, `select count(*) from getwork.run`); runs != 2 {
		t.Errorf("%d runs, want the former cluster's and one more", runs)
	}
	let(n, db, "2 is held", assign.Disposition{Outcome: "complete"})
	n.push(t, "inbox", "came later")
	if got := fmt.Sprint(items(n.endedRequest(t, waits.ID))); got != "[came later]" {
		t.Errorf("who waited there got %s here", got)
	}
	if got := query[string](t, db, `select string_agg(type, ', ' order by id) from getwork.hook_event where item = '4'`); got != "work.assigned, work.closed" {
		t.Errorf("events for web hooks, of an item that was assigned there and closed here: %s", got)
	}
}

func TestDumpIsRestored(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	moves(t, nil, schematest.OwnServer(t, nil), func(from, to string) {
		file := filepath.Join(t.TempDir(), "dump")
		tool(t, "pg_dump", "--format=custom", "--file="+file, from)
		tool(t, "pg_restore", "--no-owner", "--exit-on-error", "--dbname="+to, file)
	})
}

// The same into a newer version of PostgreSQL, by the dump as SQL that the older version's pg_dump writes.
func TestDumpIsRestoredIntoANewerVersion(t *testing.T) {
	t.Parallel()
	moves(t, nil, schematest.NewerServer(t), func(from, to string) {
		file := filepath.Join(t.TempDir(), "dump.sql")
		tool(t, "pg_dump", "--no-owner", "--file="+file, from)
		tool(t, "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file="+file, to)
	})
}

func TestPrimaryByLogicalReplication(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	replicates(t, schematest.OwnServer(t, nil))
}

func TestNewerPrimaryByLogicalReplication(t *testing.T) {
	t.Parallel()
	replicates(t, schematest.NewerServer(t))
}

// replicates moves the tables to another server by logical replication, and makes that the primary.
func replicates(t *testing.T, next *postgres.Server) {
	t.Helper()
	moves(t, map[string]string{"wal_level": "logical"}, next, func(from, to string) {
		file := filepath.Join(t.TempDir(), "schema.sql")
		tool(t, "pg_dump", "--schema-only", "--no-owner", "--file="+file, from)
		tool(t, "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file="+file, to)
		publisher, subscriber := pool(t, from), pool(t, to)
		execute(t, publisher, `create publication everything for all tables`)
		execute(t, subscriber, `create subscription everything connection '`+strings.ReplaceAll(from, "'", "''")+`' publication everything`)
		await(t, "all tables are copied", func() bool {
			return query[bool](t, subscriber, `select count(*) > 0 and bool_and(srsubstate = 'r') from pg_subscription_rel`)
		})
		execute(t, subscriber, `drop subscription everything`)
		execute(t, subscriber, raiseIDs)
	})
}

// raiseIDs does what docs/upgrade.md advises.
const raiseIDs = `
select setval(s.name, greatest(s.last, nextval(s.name)) + 1000000)
from (values
  (pg_get_serial_sequence('getwork.task', 'id'), (select max(id) from getwork.task)),
  (pg_get_serial_sequence('getwork.item', 'id'), (select max(id) from getwork.item)),
  (pg_get_serial_sequence('getwork.run', 'id'), (select max(id) from getwork.run)),
  (pg_get_serial_sequence('getwork.work', 'id'), (select max(id) from getwork.work)),
  (pg_get_serial_sequence('getwork.work_requested', 'id'), (select max(id) from getwork.work_requested)),
  (pg_get_serial_sequence('getwork.principal', 'id'), (select max(id) from getwork.principal)),
  (pg_get_serial_sequence('getwork.hook', 'id'), (select max(id) from getwork.hook)),
  (pg_get_serial_sequence('getwork.hook_event', 'id'), (select max(id) from getwork.hook_event)),
  ('getwork.round', (select max(round_id) from getwork.work_requested))
) s (name, last)`

// A login without rights reads in which life the cluster is. A session reads it once; a new timeline is another life.
func TestClusterIsKnownToAnyLogin(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	db := pool(t, address)
	execute(t, db, `create table nothing ()`)
	plain := pool(t, reader(t, address, "nothing"))
	role := query[string](t, plain, `select current_user::text`)
	execute(t, db, `grant usage on schema getwork to `+role)
	want := query[string](t, db, `select system_identifier || '/00000001' from pg_control_system()`)
	if got := query[string](t, plain, `select getwork.cluster()`); got != want {
		t.Errorf("a login without rights reads %q, want %q", got, want)
	}
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for range 2 {
		var got, kept string
		if err := conn.QueryRow(t.Context(), `select getwork.cluster(), current_setting('getwork_cluster.life')`).Scan(&got, &kept); err != nil || got != want || kept != want {
			t.Errorf("read %q, remembered %q, %v", got, kept, err)
		}
	}
}
