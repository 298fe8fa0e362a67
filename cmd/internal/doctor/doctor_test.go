package doctor

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/cmd/internal/e2e"
	"getwork/schema"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// parse reads flags as the program does.
func parse(t *testing.T, args ...string) *Command {
	t.Helper()
	var line struct {
		Doctor Command `cmd:""`
	}
	k, err := kong.New(&line, kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Parse(append([]string{"doctor"}, args...)); err != nil {
		t.Fatal(err)
	}
	return &line.Doctor
}

// ward is a database of a test's own, with a login that owns it, and a role and a login for queries.
type ward struct {
	t                  *testing.T
	admin              *pgx.Conn
	url, reader        string // of the login, and of the query login
	database           string
	login, role, reads string // names
	superuser          string // a URL
	words              *strings.Replacer
	args               []string
	limits             limits
	open               *examination // without further flags; nil: it must be opened anew
}

// admit makes a database that nothing is wrong with, apart from what the server of the tests does without.
func admit(t *testing.T) *ward {
	t.Helper()
	return admitTo(t, schematest.Empty(t))
}

func admitTo(t *testing.T, superuser string) *ward {
	t.Helper()
	ctx := t.Context()
	w := &ward{t: t, superuser: superuser, limits: usual}
	w.limits.trip = time.Minute // the tests' machine may be busy
	var err error
	if w.admin, err = pgx.Connect(ctx, superuser); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.admin.Close(context.Background()) })
	var id string
	if err := w.admin.QueryRow(ctx, `select current_database(), substr(md5(current_database() || clock_timestamp()), 1, 12)`).Scan(&w.database, &id); err != nil {
		t.Fatal(err)
	}
	w.login, w.role, w.reads = "login_"+id, "role_"+id, "reader_"+id
	w.words = strings.NewReplacer("LOGIN", w.login, "ROLE", w.role, "READER", w.reads, "DATABASE", w.database)
	t.Cleanup(func() {
		_, _ = w.admin.Exec(context.Background(), w.words.Replace(`alter database "DATABASE" owner to current_user; drop owned by LOGIN, ROLE, READER; drop role LOGIN; drop role ROLE; drop role READER`))
	})
	w.execute(`create role LOGIN login password 'secret'; create role READER login password 'secret'; create role ROLE; grant ROLE to LOGIN; alter database "DATABASE" owner to LOGIN;
create schema bank; create table bank.loan (loan_id text); grant usage on schema bank to ROLE, READER; grant select on bank.loan to ROLE, READER`)
	of := func(login string) string {
		u, err := url.Parse(superuser)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(login, "secret")
		return u.String()
	}
	w.url, w.reader = of(w.login), of(w.reads)
	conn, err := pgx.Connect(ctx, w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := schema.Up(ctx, conn, schema.Default); err != nil {
		t.Fatal(err)
	}
	w.execute(`grant usage on schema getwork to ROLE; grant select on getwork.blocked to ROLE`)
	w.args = []string{"--database-url", w.url, "--query-role", w.role, "--max-sockets", "100"}
	return w
}

// execute executes SQL as a superuser.
func (w *ward) execute(sql string) {
	w.t.Helper()
	if sql == "" {
		return
	}
	sql = w.words.Replace(sql)
	if strings.Contains(sql, "alter database") || strings.Contains(sql, "alter role") {
		w.open = nil // a session keeps what it began with
	}
	for _, one := range strings.Split(sql, "; ") { // some can't be executed in one transaction with others
		if one == "select pg_reload_conf()" {
			w.reload()
			continue
		}
		if _, err := w.admin.Exec(w.t.Context(), one); err != nil {
			w.t.Fatalf("%s: %v", one, err)
		}
	}
}

// reload has the server read its settings again. When this session has done so, the postmaster has, and with it every session
// that begins.
func (w *ward) reload() {
	w.t.Helper()
	w.open = nil
	var before time.Time
	if err := w.admin.QueryRow(w.t.Context(), `select pg_conf_load_time() from pg_reload_conf()`).Scan(&before); err != nil {
		w.t.Fatal(err)
	}
	e2e.Await(w.t, "the settings are read again", e2e.Soon, func() bool {
		var at time.Time
		return w.admin.QueryRow(w.t.Context(), `select pg_conf_load_time()`).Scan(&at) == nil && at.After(before)
	})
}

// opens are the checks that open what others need.
var opens = []string{"pooler", "database", "query-database", "schema", "nodes"}

// see returns what one check finds, with further flags; a flag that is given twice counts as given last.
func (w *ward) see(name string, args ...string) (found []Finding) {
	w.t.Helper()
	x := w.open
	if x == nil || len(args) > 0 {
		var err error
		if x, err = parse(w.t, append(slices.Clone(w.args), args...)...).prepare(); err != nil {
			w.t.Fatal(err)
		}
		if len(args) > 0 {
			defer x.close()
		} else {
			w.open = x
			w.t.Cleanup(x.close)
		}
	}
	x.limits = w.limits
	opened := x.db != nil
	for _, c := range checks {
		switch {
		case c.name == name:
			return x.run(w.t.Context(), c)
		case slices.Contains(opens, c.name) && (!opened || c.name == "schema"):
			x.run(w.t.Context(), c)
		}
	}
	w.t.Fatalf("there is no check %s", name)
	return nil
}

// broken is something that is wrong, and what the doctor says about it.
type broken struct {
	check  string
	sql    string // that breaks it
	args   []string
	limits func(*limits)
	state  State
	says   string
	mend   string // SQL; "advice": what the doctor advises
}

// expect breaks something, expects that it is found, mends it, and expects that it is well.
func (w *ward) expect(b broken) {
	w.t.Helper()
	before := w.limits
	w.execute(b.sql)
	if b.limits != nil {
		b.limits(&w.limits)
	}
	name := b.check + " after " + w.words.Replace(b.sql) + " " + strings.Join(b.args, " ")
	found := w.see(b.check, b.args...)
	w.limits = before
	at := slices.IndexFunc(found, func(f Finding) bool { return f.State == b.state && strings.Contains(f.Found, w.words.Replace(b.says)) })
	if at < 0 {
		w.t.Errorf("%s: %+v, want %s: %s", name, found, b.state, w.words.Replace(b.says))
		return
	}
	if (found[at].Advice == "") != (b.state == OK || b.state == Skipped) {
		w.t.Errorf("%s: the advice is %q", name, found[at].Advice)
	}
	switch b.mend {
	case "":
		return
	case "advice":
		_, advice, _ := strings.Cut(found[at].Advice, "execute ")
		for _, more := range []string{", and ", ", unless ", ", or "} {
			advice, _, _ = strings.Cut(advice, more)
		}
		w.execute(advice)
	default:
		w.execute(b.mend)
	}
	if found := w.see(b.check); len(found) != 1 || found[0].State != OK {
		w.t.Errorf("%s, mended by %q: %+v", name, b.mend, found)
	}
}

// What the doctor asks the query database, a standby answers whatever transactions default to.
func TestQueryDatabaseIsNotSerializable(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	x, err := parse(t, "--database-url", url, "--query-database-url", url+"&default_transaction_isolation=serializable").prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	if found, err := lookAtQueryDatabase(t.Context(), x); err != nil || found[0].State != OK {
		t.Fatal(found, err)
	}
	var level string
	if err := x.queries.QueryRow(t.Context(), `show default_transaction_isolation`).Scan(&level); err != nil || level != "read committed" {
		t.Errorf("it is %s, %v", level, err)
	}
}

// A role that the login may not take is distinguished from one that may not read, in whatever language the server answers.
func TestQueryRoleInAnotherLanguage(t *testing.T) {
	t.Parallel()
	denied := &pgconn.PgError{Severity: "FEHLER", Code: "42501", Message: "keine Berechtigung, um Rolle »reads« zu setzen"}
	for _, tt := range []struct {
		unset, unread error
		state         State
		says          string
	}{
		{denied, nil, Error, "can't become the role reads"},
		{nil, denied, Warning, "may not read getwork.blocked"},
	} {
		found, err := queryRoleFinding("reads", "getwork", schema.Default, tt.unset, tt.unread)
		if err != nil || len(found) != 1 || found[0].State != tt.state || !strings.Contains(found[0].Found, tt.says) {
			t.Errorf("%+v, %v, want %s: %s", found, err, tt.state, tt.says)
		}
	}
}

// A time is short, and never nothing.
func TestRound(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		43567 * time.Nanosecond:   "44µs",
		1234567 * time.Nanosecond: "1.2ms",
		43567 * time.Microsecond:  "44ms",
		12345 * time.Millisecond:  "12s",
	} {
		if got := round(d).String(); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
