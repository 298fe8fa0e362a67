package setup_test

import (
	"context"
	"flag"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

var update = flag.Bool("setup.update", false, "write the golden files")

func TestMain(m *testing.M) { e2e.Main(m) }

const tables = `
create schema bank;
create table bank.loan (loan_id bigint primary key, customer text, amount numeric(12, 2), priority integer, submitted_at timestamptz, due date, scan bytea);
create table bank."Order Line" (order_id integer, line integer, entered date, primary key (order_id, line));
create table plain (name text, note text);
create table booking (id integer primary key, item text, slots integer, exclusive boolean);
insert into booking values (1, 'a chair', 8, true), (2, 'a table', 2, true);`

// The files fit the table, and do what they say: a shell reads the settings, a node starts with them, and the task hands out the
// table's rows in the order that was guessed. Nothing is overwritten.
func TestInit(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), tables+`insert into bank.loan values (1, 'a', 1, 1, '2026-01-01', '2026-02-01'), (2, 'b', 2, 9, '2026-01-01', '2026-02-01'), (3, 'c', 3, 1, '2026-01-02', '2026-01-15')`); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_DATABASE_URL=" + address}}
	out := c.Run(0, nil, "init", "--table", "bank.loan", "--dir", dir)
	golden(t, "init.txt", strings.ReplaceAll(out, dir, "DIR"))
	task, env := filepath.Join(dir, "work-on-loan.yaml"), filepath.Join(dir, "getwork.env")
	golden(t, "work-on-loan.yaml", read(t, task))
	golden(t, "getwork.env", strings.ReplaceAll(read(t, env), address, "postgres://URL"))
	if is, err := os.Stat(env); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("%v; the mode of getwork.env is %v", err, is.Mode())
	}

	c.Run(1, e2e.Text("getwork.env exists, and is not overwritten"), "init", "--dir", dir)
	c.Run(2, e2e.Text("there is no table bank.nothing"), "init", "--table", "bank.nothing", "--dir", t.TempDir())
	other := t.TempDir()
	c.Run(0, e2e.Text("its key is made of the columns of the primary key"), "init", "--table", `bank."Order Line"`, "--dir", other)
	golden(t, "work-on-order-line.yaml", read(t, filepath.Join(other, "work-on-order-line.yaml")))
	if err := os.Remove(filepath.Join(other, "getwork.env")); err != nil {
		t.Fatal(err)
	}
	c.Run(0, e2e.Text("since there is no primary key"), "init", "--table", "plain", "--dir", other)
	c.Env = nil
	c.Run(2, e2e.Text("no database: give --database-url"), "init", "--dir", t.TempDir())

	shell := exec.CommandContext(t.Context(), "sh", "-c", `set -a; . "$0"; set +a; printf %s "$GETWORK_DATABASE_URL"`, env)
	if got, err := shell.Output(); err != nil || string(got) != address {
		t.Errorf("a shell reads %q, %v; want %q", got, err, address)
	}
	node := cluster.Start(t, 1, cluster.Options{DatabaseURL: address})[0]
	c.Env = []string{"GETWORK_URL=" + node.URL, "GETWORK_USER=oliver"}
	c.Run(0, nil, "task", "create", "-f", task)
	var got struct {
		Work []struct{ Item string }
	}
	c.Decode(0, &got, "get", "work-on-loan", "--count", "3", "--wait", "30s")
	if len(got.Work) != 3 || got.Work[0].Item != "2" || got.Work[1].Item != "3" || got.Work[2].Item != "1" {
		t.Errorf("handed out: %+v, want 2, 3, 1", got)
	}

	// Columns that getwork would take for its own are only shown.
	other = t.TempDir()
	c.Run(0, nil, "init", "--database-url", address, "--table", "booking", "--dir", other)
	task = filepath.Join(other, "work-on-booking.yaml")
	golden(t, "work-on-booking.yaml", read(t, task))
	c.Run(0, nil, "task", "create", "-f", task)
	c.Decode(0, &got, "get", "work-on-booking", "--count", "3", "--wait", "30s")
	if len(got.Work) != 2 || got.Work[0].Item != "1" || got.Work[1].Item != "2" {
		t.Errorf("handed out: %+v, want 1, 2", got)
	}
	c.Run(1, e2e.Text("every item that matches"), "get", "work-on-booking", "--user", "tracy", "--wait", "30s") // has one place
}

// In the shell of docs/install.md the node's login may not read the table, and the one of queries may.
func TestInitReadsByTheQueryLogin(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var id string
	if err := conn.QueryRow(t.Context(), `select substr(md5(current_database()), 1, 12)`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	node, queries := "node_"+id, "queries_"+id
	t.Cleanup(func() {
		_, _ = conn.Exec(context.Background(), `drop owned by `+node+`, `+queries+`; drop role `+node+`; drop role `+queries)
	})
	if _, err := conn.Exec(t.Context(), tables+`create role `+node+` login password 'secret'; create role `+queries+` login password 'secret';
grant usage on schema bank to `+queries+`; grant select on all tables in schema bank to `+queries); err != nil {
		t.Fatal(err)
	}
	of := func(login string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(login, "secret")
		return u.String()
	}
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_DATABASE_URL=" + of(node)}}
	c.Run(1, e2e.Text("permission denied for schema bank"), "init", "--table", "bank.loan", "--dir", t.TempDir())
	c.Env = append(c.Env, "GETWORK_QUERY_DATABASE_URL="+of(queries))
	dir := t.TempDir()
	c.Run(0, e2e.Text("has the task work-on-loan"), "init", "--table", "bank.loan", "--dir", dir)
	if text := read(t, filepath.Join(dir, "getwork.env")); !strings.Contains(text, "\nGETWORK_QUERY_DATABASE_URL='"+of(queries)+"'\n") {
		t.Errorf("the settings have no login for queries:\n%s", text)
	}
	file := filepath.Join(dir, "url")
	if err := os.WriteFile(file, []byte(of(queries)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Env = []string{"GETWORK_DATABASE_URL=" + of(node), "GETWORK_QUERY_DATABASE_URL_FILE=" + file}
	dir = t.TempDir()
	c.Run(0, e2e.Text("has the task work-on-loan"), "init", "--table", "bank.loan", "--dir", dir)
	if text := read(t, filepath.Join(dir, "getwork.env")); !strings.Contains(text, "\nGETWORK_QUERY_DATABASE_URL_FILE='"+file+"'\n") {
		t.Errorf("the settings have no login for queries:\n%s", text)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(read(t, file), got); diff != "" {
		t.Errorf("%s (-want +got); -setup.update writes it\n%s", file, diff)
	}
}
