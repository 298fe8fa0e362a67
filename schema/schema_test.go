package schema_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/schema"
	"getwork/schema/schematest"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// objects lists everything in a database outside PostgreSQL's own schemas: schemas, relations, constraints,
// functions and types, each with its definition.
func objects(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	const query = `
		with s as (
			select oid, nspname from pg_namespace
			where nspname !~ '^pg_' and nspname not in ('information_schema', 'public'))
		select 'schema ' || nspname from s
		union all
		select c.relkind::text || ' ' || c.relname || coalesce(' ' || pg_get_indexdef(i.indexrelid), '') || coalesce(' ' || c.reloptions::text, '')
			|| case when c.relkind = 'v' then ' ' || pg_get_viewdef(c.oid) else '' end
		from pg_class c join s on s.oid = c.relnamespace left join pg_index i on i.indexrelid = c.oid
		union all
		select 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attidentity::text || a.attgenerated::text
			|| case when a.attnotnull then ' not null' else '' end || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
			|| coalesce(' collate ' || l.collname, '')
		from pg_class c join s on s.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
		left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum left join pg_collation l on l.oid = a.attcollation
		where c.relkind in ('r', 'p', 'v', 'm')
		union all
		select 'constraint ' || c.conname || ' ' || pg_get_constraintdef(c.oid) from pg_constraint c join s on s.oid = c.connamespace
		union all
		select 'function ' || p.oid::regprocedure || ' ' || case when p.prokind in ('f', 'p') then pg_get_functiondef(p.oid) else '' end
		from pg_proc p join s on s.oid = p.pronamespace
		union all
		select 'trigger ' || pg_get_triggerdef(g.oid) from pg_trigger g join pg_class c on c.oid = g.tgrelid join s on s.oid = c.relnamespace
		where not g.tgisinternal
		union all
		select 'type ' || y.typname from pg_type y join s on s.oid = y.typnamespace
		order by 1`
	rows, err := conn.Query(context.Background(), query)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func status(t *testing.T, conn *pgx.Conn, n schema.Name) (current, latest int32) {
	t.Helper()
	current, latest, err := schema.Status(context.Background(), conn, n)
	if err != nil {
		t.Fatal(err)
	}
	return current, latest
}

// A reserved word as a name shows that the name is quoted wherever it stands.
func TestUpDownUp(t *testing.T) {
	t.Parallel()
	for _, n := range []schema.Name{schema.Default, "other_desk", "user"} {
		t.Run(string(n), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			conn := connect(t, schematest.Empty(t))
			if current, latest := status(t, conn, n); current != 0 || latest < 1 {
				t.Fatalf("before: version %d of %d", current, latest)
			}
			if err := schema.Check(ctx, conn, n); !errors.Is(err, schema.ErrOlder) {
				t.Fatalf("Check before: %v", err)
			}
			if err := schema.Up(ctx, conn, n); err != nil {
				t.Fatal(err)
			}
			if current, latest := status(t, conn, n); current != latest {
				t.Fatalf("after up: version %d of %d", current, latest)
			}
			if err := schema.Check(ctx, conn, n); err != nil {
				t.Fatal(err)
			}
			made := objects(t, conn)
			if err := schema.Down(ctx, conn, n, 0); err != nil {
				t.Fatal(err)
			}
			if left := objects(t, conn); len(left) > 0 {
				t.Fatalf("left behind: %q", left)
			}
			if err := schema.Down(ctx, conn, n, 0); err != nil {
				t.Fatalf("down with nothing there: %v", err)
			}
			for range 2 {
				if err := schema.Up(ctx, conn, n); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(made, objects(t, conn)); diff != "" {
				t.Error(diff)
			}
			var locks int
			const held = `select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()`
			if err := conn.QueryRow(ctx, held).Scan(&locks); err != nil || locks != 0 {
				t.Errorf("%d advisory locks are still held (%v)", locks, err)
			}
		})
	}
}

// Each migration's way down restores exactly the state before it.
func TestDownStepByStep(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	ctx := context.Background()
	conn := connect(t, schematest.Empty(t))
	_, latest := status(t, conn, schema.Default)
	had := [][]string{{}} // the objects of each version
	if err := schema.Create(ctx, conn, schema.Default); err != nil {
		t.Fatal(err)
	}
	for to := int32(1); to <= latest; to++ {
		if err := schema.MigrateTo(ctx, conn, schema.Default, to, nil); err != nil {
			t.Fatal(err)
		}
		had = append(had, objects(t, conn))
	}
	for to := latest - 1; to >= 0; to-- {
		if err := schema.Down(ctx, conn, schema.Default, to); err != nil {
			t.Fatal(err)
		}
		if current, _ := status(t, conn, schema.Default); current != to {
			t.Fatalf("version %d, want %d", current, to)
		}
		if diff := cmp.Diff(had[to], objects(t, conn)); diff != "" {
			t.Errorf("back at version %d:\n%s", to, diff)
		}
	}
	if err := schema.Down(ctx, conn, schema.Default, 1); err == nil {
		t.Error("down went up")
	}
}

func TestManyNodesAtOnce(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	const nodes = 8
	url := schematest.Empty(t)
	conns := make([]*pgx.Conn, nodes)
	for i := range conns {
		conns[i] = connect(t, url)
	}
	for round := range 3 {
		start := make(chan struct{})
		var g errgroup.Group
		for _, conn := range conns {
			g.Go(func() error {
				<-start
				return schema.Up(context.Background(), conn, schema.Default)
			})
		}
		close(start)
		if err := g.Wait(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := schema.Check(context.Background(), conns[0], schema.Default); err != nil {
			t.Fatal(err)
		}
		if err := schema.Down(context.Background(), conns[0], schema.Default, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn := connect(t, schematest.URL(t))
	exec(t, conn, `update getwork.version set version = 999`)
	for name, f := range map[string]func() error{
		"Up":    func() error { return schema.Up(ctx, conn, schema.Default) },
		"Check": func() error { return schema.Check(ctx, conn, schema.Default) },
		"Down":  func() error { return schema.Down(ctx, conn, schema.Default, 0) },
	} {
		if err := f(); !errors.Is(err, schema.ErrNewer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Tables that were made before 0.1 are left alone, and one sentence says what to do. Their number of a version says nothing: it was 25.
func TestUnreleased(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn := connect(t, schematest.Empty(t))
	exec(t, conn, `create schema getwork; create table getwork.schema_version (version integer not null); insert into getwork.schema_version values (1)`)
	was := objects(t, conn)
	for name, f := range map[string]func() error{
		"Up":     func() error { return schema.Up(ctx, conn, schema.Default) },
		"Check":  func() error { return schema.Check(ctx, conn, schema.Default) },
		"Down":   func() error { return schema.Down(ctx, conn, schema.Default, 0) },
		"Status": func() error { _, _, err := schema.Status(ctx, conn, schema.Default); return err },
	} {
		const says = "schema was made before getwork 0.1: save what you need of getwork with pg_dump, and use an empty database or another --schema"
		if err := f(); !errors.Is(err, schema.ErrUnreleased) || err.Error() != says {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(was, objects(t, conn)); diff != "" {
		t.Error(diff)
	}
	if err := schema.Up(ctx, conn, "another"); err != nil {
		t.Error(err)
	}
}

// Objects that others have put into the schema are not deleted with it.
func TestDownKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	conn := connect(t, schematest.URL(t))
	exec(t, conn, `create table getwork.notes_of_others ()`)
	if err := schema.Down(context.Background(), conn, schema.Default, 0); err == nil {
		t.Error("the schema was dropped with a table of somebody else's in it")
	}
	exec(t, conn, `drop table getwork.notes_of_others`)
	if err := schema.Down(context.Background(), conn, schema.Default, 0); err != nil {
		t.Error(err)
	}
	if left := objects(t, conn); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Two installations in one database don't see each other.
func TestTwoNames(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn := connect(t, schematest.URL(t))
	if err := schema.Up(ctx, conn, "second"); err != nil {
		t.Fatal(err)
	}
	if err := schema.Down(ctx, conn, schema.Default, 0); err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(ctx, conn, "second"); err != nil {
		t.Error(err)
	}
}

// A login without the right to create anything can start a node on a schema that is up to date.
func TestUpWithNothingToDoNeedsNoRights(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn := connect(t, schematest.URL(t))
	exec(t, conn, `create role schema_test_reader`)
	t.Cleanup(func() { exec(t, conn, `reset role; drop owned by schema_test_reader; drop role schema_test_reader`) })
	exec(t, conn, `grant usage on schema getwork to schema_test_reader`)
	exec(t, conn, `grant select on getwork.version to schema_test_reader`)
	exec(t, conn, `set role schema_test_reader`)
	if err := schema.Up(ctx, conn, schema.Default); err != nil {
		t.Error(err)
	}
}

// \d+ explains the system: every table, view and column says what it is.
func TestEverythingIsExplained(t *testing.T) {
	t.Parallel()
	db := schematest.Pool(t)
	rows, err := db.Query(t.Context(), `
select c.relname || coalesce('.' || a.attname, '')
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where n.nspname = 'getwork' and c.relkind in ('r', 'v') and c.relname <> 'version'
  and (obj_description(c.oid, 'pg_class') is null or a.attnum is not null and col_description(c.oid, a.attnum) is null)
order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(bare) > 0 {
		t.Errorf("no comment on %v", bare)
	}
}

// A migration after the first says what becomes of older nodes, which go on beside it during a rolling upgrade.
func TestMigrationsSpeakOfOlderNodes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) < 1 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files[1:] {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if up, _, _ := strings.Cut(string(text), "---- create above / drop below ----"); !strings.Contains(up, "Older nodes") {
			t.Errorf("%s does not say whether older nodes work beside it: begin a sentence of its comment with \"Older nodes\"", file)
		}
	}
}

// A database in another encoding is migrated over a connection that speaks UTF-8, as a node's does.
func TestUpInAnotherEncoding(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(schematest.Encoded(t, "LATIN1"))
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["client_encoding"] = "UTF8"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := schema.Up(t.Context(), conn, "another"); err != nil {
		t.Error(err)
	}
}
