package schematest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/peterldowns/pgtestdb"

	"getwork/schema"
)

// URL returns the URL of a migrated database for this test alone. The database is dropped after the test, and
// sessions that are still connected are ended.
func URL(t testing.TB) string {
	t.Helper()
	return clone(t, migrated{})
}

// Empty returns the URL of an empty database for this test alone.
func Empty(t testing.TB) string {
	t.Helper()
	return clone(t, empty{})
}

// plain is a login that is no superuser, as a node's should be.
const plain = "getwork_plain"

// Plain returns the URL of an empty database for this test alone, for a login that owns the database and is no
// superuser: a node that is not under --auth dev accepts no other.
func Plain(t testing.TB) string {
	t.Helper()
	admin := Empty(t)
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	name := pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()
	// Other tests may make the role at the same time.
	err = execute(t.Context(), admin, `
do $$ begin
  create role `+plain+` login password '`+plain+`';
exception when duplicate_object or unique_violation then null;
end $$;
alter database `+name+` owner to `+plain)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(plain, plain)
	return u.String()
}

// Connector makes a login that may only connect to the database at address, a URL, and returns the URL for it.
func Connector(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	role := "connector" + strings.ToLower(rand.Text())
	if err := execute(t.Context(), address, `create role `+role+` login password 'secret'`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = execute(context.Background(), address, `drop owned by `+role+`; drop role `+role) }) // or with its server
	u.User = url.UserPassword(role, "secret")
	return u.String()
}

// Pool returns connections to a migrated database for this test alone. They are closed after the test.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func clone(t testing.TB, m pgtestdb.Migrator) string {
	t.Helper()
	admin := os.Getenv(environment)
	if admin == "" {
		admin = Server(t).URL("postgres")
	}
	conf, err := configFor(admin)
	if err != nil {
		t.Fatal(err)
	}
	return pgtestdb.Custom(t, conf, m).URL()
}

// configFor takes a URL apart, because pgtestdb assembles one for each database. A socket's folder can't be a
// URL's host, and goes into the options.
func configFor(admin string) (pgtestdb.Config, error) {
	parsed, err := pgx.ParseConfig(admin)
	if err != nil {
		return pgtestdb.Config{}, err
	}
	options := url.Values{}
	if u, err := url.Parse(admin); err == nil {
		options = u.Query()
	}
	for _, name := range []string{"host", "port", "user", "password", "dbname", "database"} {
		options.Del(name)
	}
	host := parsed.Host
	switch {
	case strings.HasPrefix(host, "/"):
		options.Set("host", host)
		host = ""
	case net.ParseIP(host) != nil && strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	return pgtestdb.Config{
		DriverName: frugalDriver,
		Host:       host,
		Port:       strconv.Itoa(int(parsed.Port)),
		User:       url.QueryEscape(parsed.User),
		Password:   url.QueryEscape(parsed.Password),
		Database:   parsed.Database,
		Options:    options.Encode(),
		TestRole: &pgtestdb.Role{
			Username:     "getwork_test",
			Password:     "getwork_test",
			Capabilities: "superuser",
		},
		// Killed nodes, and the private server's shutdown, leave connections for a moment.
		ForceTerminateConnections: true,
	}, nil
}

// migrated makes the template that [URL] clones.
type migrated struct{}

func (migrated) Hash() (string, error) { return schema.Hash() }

func (migrated) Migrate(ctx context.Context, _ *sql.DB, template pgtestdb.Config) error {
	return migrateUp(ctx, template.URL())
}

// empty makes the template that [Empty] clones.
type empty struct{}

func (empty) Hash() (string, error) { return "empty", nil }

func (empty) Migrate(context.Context, *sql.DB, pgtestdb.Config) error { return nil }
