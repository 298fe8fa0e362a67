package rights

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// desk is a registry on a database of its own.
type desk struct {
	*Registry
	watch *Watch
	db    *pgxpool.Pool
}

func newDesk(t *testing.T, change ...func(*Config)) *desk {
	t.Helper()
	db, err := pgxpool.New(t.Context(), schematest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	c := Config{Node: "n1", DB: pg.Router{Calls: db}, Channel: "getwork", Audit: &audit.Writer{Node: "n1", Log: log, DB: pg.Router{Calls: db}}, Log: log}
	for _, f := range change {
		f(&c)
	}
	g := New(c)
	return &desk{g, NewWatch(g), db}
}

func (d *desk) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := d.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// logIn makes a session for somebody of the provider "idp".
func (d *desk) logIn(t *testing.T, name string, role assign.Role, former string) (cookie string) {
	t.Helper()
	begun, err := d.Begin(t.Context(), LogIn{Entry: Entry{Iss: "idp", Sub: "sub of " + name, Name: name, Role: role, Groups: []string{"desk"}},
		Max: 10 * time.Hour, AuthAt: time.Now(), Former: former})
	if err != nil {
		t.Fatal(err)
	}
	return begun.Cookie
}

// session returns the rights of a cookie, past the cache.
func (d *desk) session(t *testing.T, cookie string) (Rights, error) {
	t.Helper()
	d.cache.clear()
	return d.Session(t.Context(), cookie)
}

func (d *desk) token(t *testing.T, token string) (Rights, error) {
	t.Helper()
	d.cache.clear()
	return d.Token(t.Context(), token)
}

// service makes a token for a service.
func (d *desk) service(t *testing.T, name string, role assign.Role) (token, id string) {
	t.Helper()
	token, made, err := d.CreateToken(t.Context(), NewToken{Label: "for " + name, Scopes: []string{ScopeRead, ScopeWork}, Service: name, Role: role})
	if err != nil {
		t.Fatal(err)
	}
	return token, made.ID
}

func why(err error) string {
	if r := RejectionOf(err); r != nil {
		return r.Why
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// count counts rows.
func (d *desk) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	rows, _ := d.db.Query(t.Context(), sql, args...)
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
