package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
	"getwork/schema/schematest/pgbouncer"
	"getwork/schema/schematest/timeout"
	"getwork/ws/agent"
	"getwork/ws/client"
)

// tokenForm is a token alone on its line.
var tokenForm = regexp.MustCompile(`^gw_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}\n$`)

// doors is a node where tokens are the only way in.
type doors struct {
	e2e.Terminal
	url string // of the database
}

func newDoors(t *testing.T) doors {
	t.Helper()
	url := schematest.Plain(t)
	node := cluster.Start(t, 1, cluster.Options{DatabaseURL: url, Args: e2e.Text("--auth", "token", "--public-url", "http://127.0.0.1:0"), Env: e2e.Text("GETWORK_TRUST_QUERY_WRITERS=true")})[0]
	return doors{e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: e2e.Text("GETWORK_URL="+node.URL, "XDG_CONFIG_HOME="+t.TempDir())}, url}
}

// direct makes a token on the database.
func (d doors) direct(args ...string) (token string) {
	d.T.Helper()
	out := d.Run(0, e2e.Text("It is not shown again.", "msg=audit"), append(e2e.Text("token", "create", "--direct", "--database-url", d.url), args...)...)
	if !tokenForm.MatchString(out) {
		d.T.Fatalf("standard output has %q, not a token alone", out)
	}
	return strings.TrimSpace(out)
}

// with is the same terminal for the owner of a token.
func (d doors) with(token string) doors {
	d.Env = append(d.Env[:len(d.Env):len(d.Env)], "GETWORK_TOKEN="+token)
	return d
}

// The first administrator comes from the database, and manages people from there.
func TestFirstAdministrator(t *testing.T) {
	t.Parallel()
	d := newDoors(t)
	d.Run(2, e2e.Text("say who you are: with `getwork login`, with --token-file"), "user", "list")
	d.Run(1, e2e.Text("believes no names, because it does not run with --auth dev\nLog in with `getwork login`; programs show a token"), "task", "list")
	admin := d.with(d.direct("--label", "first administrator", "--user", "ops", "--role", "manager", "--admin"))
	admin.Run(0, e2e.Text("USER  KIND     ROLE            LAST LOG-IN  SESSIONS  TOKENS  HOLDS", "ops   service  manager, admin  -            0         1       0"), "user", "list")
	admin.Run(0, e2e.Text("There are no tasks yet."), "task", "list")

	var audited struct {
		Rows []struct{ Actor, By, Act, Object, Address string } `json:"audit"`
	}
	conn, err := pgx.Connect(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var text string
	if err := conn.QueryRow(t.Context(), `
select jsonb_build_object('audit', jsonb_agg(jsonb_build_object('actor', actor, 'by', by, 'act', act, 'object', object, 'address', host(address)))) from getwork.audit where node = 'direct'`).Scan(&text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &audited); err != nil || len(audited.Rows) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	if r := audited.Rows[0]; r.Actor != "getwork_plain" || r.By != "direct" || r.Act != "token.create" || len(r.Object) != 12 {
		t.Errorf("audited %+v", r)
	}

	var list struct{ Tokens []rights.ShownToken }
	admin.Decode(0, &list, "token", "list")
	if len(list.Tokens) != 1 || !list.Tokens[0].Admin || list.Tokens[0].UsedAt == nil && time.Until(list.Tokens[0].ExpiresAt) > 24*time.Hour || len(list.Tokens[0].Scopes) != 4 {
		t.Errorf("tokens %+v", list)
	}
	// A token makes no tokens: whoever copies one could live on in others.
	admin.Run(1, e2e.Text("a token makes no tokens"), "token", "create", "--label", "x", "--user", "robot", "--role", "agent")

	token := d.direct("--label", "robot", "--user", "robot", "--role", "agent", "--scopes", "read,work,push", "--expires", "1h")
	robot := d.with(token)
	robot.Run(1, e2e.Text("this call is for administrators, and you are not one"), "user", "list")
	robot.Run(0, e2e.Text("The pipeline is empty"), "pipeline")
	d.agentWith(token)
	robot.Run(1, e2e.Text("this token is for push and read and work, and this call needs manage"), "session", "end", "--all", "--yes")
	admin.Run(1, e2e.Text("there is no user \"nobody\"; `getwork user list`"), "user", "block", "nobody", "--yes")
	admin.Run(2, e2e.Text("nobody can be asked: --yes"), "user", "block", "robot")
	admin.Run(0, e2e.Text("BLOCKED", "robot"), "user", "block", "robot", "--yes")
	robot.Run(1, e2e.Text("your account is blocked; ask an administrator"), "pipeline")
	admin.Run(0, e2e.Text("robot"), "user", "unblock", "robot")
	robot.Run(0, nil, "pipeline")
	// Somebody who is blocked has made a service, of which they may have the token.
	d.direct("--label", "x", "--user", "maker", "--role", "agent")
	made := d.with(d.direct("--label", "made by maker", "--user", "printer", "--role", "agent"))
	if _, err := conn.Exec(t.Context(), `update getwork.token set made_by = (select id from getwork.principal where name = 'maker') where label = 'made by maker'`); err != nil {
		t.Fatal(err)
	}
	admin.Run(0, e2e.Text("maker", "The tokens that they made for printer go on; `getwork user block maker --with-services` ends them."), "user", "block", "maker", "--yes")
	made.Run(0, nil, "pipeline")
	admin.Run(0, e2e.Text("Ended: the tokens that they made for printer."), "user", "block", "maker", "--with-services", "--yes")
	made.Run(1, e2e.Text("this has been ended"), "pipeline")
	admin.Run(0, e2e.Text("robot"), "user", "list", "--of", "robot")
	admin.Run(0, e2e.Text("There are no sessions."), "session", "list", "--of", "robot")
	admin.Run(1, e2e.Text("nobody logs in with a browser here"), "session", "wall")
	admin.Run(2, e2e.Text("--expires must be from 1m to 720h"), "session", "wall", "--expires", "721h")
	robot.Run(1, e2e.Text("this call is for administrators"), "session", "wall")
	admin.Run(1, e2e.Text("no live session has this id; `getwork session list`"), "session", "end", "nothing", "--yes")

	var robots struct{ Tokens []rights.ShownToken }
	admin.Decode(0, &robots, "token", "list", "--of", "robot")
	admin.Run(1, e2e.Text("Ended: token "+robots.Tokens[0].ID+".", "there is no token \"nothing\"; `getwork token list`"), "token", "revoke", robots.Tokens[0].ID, "nothing", "--yes")
	robot.Run(1, e2e.Text("this has been ended"), "pipeline")
	admin.Run(0, e2e.Text("SUBJECT", "8f14e45f"), "user", "rebind", "robot", "--issuer", "https://login.bank.example", "--subject", "8f14e45f", "--yes")
	admin.Run(1, e2e.Text("the name belongs to this account already"), "user", "rebind", "robot", "--issuer", "https://login.bank.example", "--subject", "8f14e45f", "--yes")
	// The name belongs to somebody who logs in, now.
	d.Run(1, e2e.Text(`"robot" is the name of somebody who logs in, or looks like one; give the service another`),
		"token", "create", "--direct", "--database-url", d.url, "--label", "x", "--user", "robot", "--role", "agent")
	d.Run(1, e2e.Text(`is the name of somebody who logs in`), "token", "create", "--direct", "--database-url", d.url, "--label", "x", "--user", "Robot", "--role", "manager", "--admin")
}

// agentWith runs a Go program's agent whose token was read from a file with its line break. It ends at once, since no node will
// ever get that token.
func (d doors) agentWith(token string) {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(d.T.Context(), timeout.Scale(e2e.Soon))
	defer cancel()
	a := agent.Agent{URL: strings.TrimPrefix(d.Env[0], "GETWORK_URL="), Token: token + "\n", Task: "photos",
		Handler: agent.HandlerFunc(func(context.Context, assign.Work) error { return nil })}
	if err := a.Run(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "Token contains a line break") || strings.Contains(err.Error(), token) {
		d.T.Errorf("an agent whose token has a line break: %v", err)
	}
	a.Token = token
	if err := a.Run(ctx); client.KindOf(err) != assign.NotFound {
		d.T.Errorf("without the line break: %v", err)
	}
}

// --direct works through a transaction pooler, and says what is missing in a database without tables. The database's URL may stand
// in a file, as for all commands that reach the database themselves.
func TestDirect(t *testing.T) {
	t.Parallel()
	d := doors{e2e.Terminal{T: t, Binary: cluster.Binary(t)}, schematest.URL(t)}
	create := e2e.Text("token", "create", "--direct", "--label", "x", "--user", "ops", "--role", "manager", "--database-url")
	d.Run(1, e2e.Text("run `getwork migrate up`"), append(create, schematest.Empty(t))...)
	d.Run(1, e2e.Text("can't connect to the database"), append(create, "postgres://127.0.0.1:1/x")...)
	d.Run(2, e2e.Text("no database: give --database-url"), create[:len(create)-1]...)
	file := filepath.Join(t.TempDir(), "database-url")
	if err := os.WriteFile(file, []byte(schematest.Empty(t)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Run(0, nil, "migrate", "up", "--database-url-file", file)
	d.Run(0, e2e.Text("gw_"), append(create[:len(create)-1], "--database-url-file", file)...)
	conn, err := pgx.Connect(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	name := pgx.Identifier{conn.Config().Database}.Sanitize()
	if _, err := conn.Exec(t.Context(), `alter database `+name+` set datestyle = 'SQL, DMY'; alter database `+name+` set bytea_output = escape`); err != nil {
		t.Fatal(err)
	}
	d.direct("--label", "x", "--user", "ops", "--role", "observer", "--tasks", "loans,bonds", "--member-of", "desk")
	d.Run(0, e2e.Text("as they were written"), "audit", "verify", "--database-url", d.url)
	if pgbouncer.Program() == "" {
		t.Skip("PgBouncer is not installed: apt-get install pgbouncer")
	}
	d.url = pgbouncer.Start(t, d.url, pgbouncer.Options{}).URL
	d.direct("--label", "x", "--user", "ops", "--role", "observer", "--tasks", "loans,bonds", "--member-of", "desk")
	d.Run(0, e2e.Text("as they were written"), "audit", "verify", "--database-url", d.url)
}

func TestTokenUsage(t *testing.T) {
	t.Parallel()
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: e2e.Text("GETWORK_USER=mia", "GETWORK_ROLE=manager", "GETWORK_YES=true", "XDG_CONFIG_HOME="+t.TempDir())}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("gw_1\ngw_2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(args ...string) []string { return append(e2e.Text("token", "create", "--label", "x"), args...) }
	direct := func(args ...string) []string { return create(append(e2e.Text("--direct"), args...)...) }
	for _, tt := range []struct {
		says string
		args []string
	}{
		{"missing flags: --label", e2e.Text("token", "create")},
		{"--label is empty", e2e.Text("token", "create", "--label", "")},
		{"--scopes are some of read, work, push, manage", create("--scopes", "read,all")},
		{"add --direct and --database-url", create("--admin")},
		{"--direct needs --user and --role", direct()}, // neither comes from the environment
		{"--user, --role and --member-of describe a service", create("--user", "robot")},
		{"--user, --role and --member-of describe a service", create("--member-of", "desk")},
		{"--role must be worker", create("--user", "robot", "--role", "boss")},
		{"a user name has no two spaces", create("--user", "a  b", "--role", "agent")},
		{"a group has 1 to 128 bytes", create("--user", "a", "--role", "agent", "--member-of", "a\nb")},
		{"--expires must be at least 1m", create("--expires", "1s")},
		{"an administrator's token lives for at most 24h", direct("--user", "ops", "--role", "manager", "--admin", "--expires", "25h")},
		{"say who you are", create()},
		{"give the token's id", e2e.Text("token", "revoke", "gw_abcdefghijkl_"+strings.Repeat("x", 49), "--yes", "--token-file", file)},
		{"a name or an id is empty", e2e.Text("token", "revoke", "", "--yes")},
		{"nobody can be asked: --yes", e2e.Text("token", "revoke", "abcdefghijkl")},
		{"nobody can be asked: --yes", e2e.Text("session", "end", "abcdefghijkl")},
		{"nobody can be asked: --yes", e2e.Text("user", "rebind", "mia", "--issuer", "x", "--subject", "y")},
		{"a name or an id is empty", e2e.Text("user", "rebind", "mia", "--issuer", "x", "--subject", "", "--yes")},
		{"name the sessions to end", e2e.Text("session", "end", "--yes")},
		{"name the sessions to end", e2e.Text("session", "end", "abcdefghijkl", "--all", "--yes")},
		{"can't be used together", e2e.Text("session", "end", "--of", "mia", "--all", "--yes")},
		{"--of is empty", e2e.Text("session", "end", "--of", "", "--yes")},
		{"must hold one line", e2e.Text("user", "list", "--token-file", file)},
		{"no such file", e2e.Text("user", "list", "--token-file", "no-such-file")},
		{"a token does not go over http to getwork.bank.example", e2e.Text("user", "list", "--token", "gw_1", "--url", "http://getwork.bank.example")},
		{"give the node's https:// address as --url", e2e.Text("agent", "photos", "--token", "gw_1", "--user", "", "--role", "", "--url", "http://10.0.0.1:8080", "--", "true")},
		{"a token does not go over http to 127.0.0.1.bank.example", e2e.Text("user", "list", "--token", "gw_1", "--url", "http://127.0.0.1.bank.example/")},
	} {
		c.Run(2, e2e.Text(tt.says), tt.args...)
	}
}

// A token comes from a file, the environment, or the command line, which everybody can read.
func TestWhereATokenComesFrom(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the token went to another origin") }))
	defer elsewhere.Close()
	var redirects atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got.Store(r.Header.Get("Authorization")); redirects.Load() {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		_, _ = io.WriteString(w, `{"tasks":[],"users":[],"work":[]}`)
	}))
	defer server.Close()
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: e2e.Text("GETWORK_URL="+server.URL, "GETWORK_TOKEN=gw_environment", "XDG_CONFIG_HOME="+t.TempDir())}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("gw_file\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const inPS, readable = "every user of this machine can read --token", "every user of this machine can read "
	for _, tt := range []struct {
		want, warns string
		args        []string
	}{
		{"gw_environment", "", nil},
		{"gw_flag", inPS, e2e.Text("--token", "gw_flag")},
		{"gw_flag", inPS, e2e.Text("--token=gw_flag")},
		{"gw_file", readable + file, e2e.Text("--token-file", file)},
	} {
		command, _, errs := c.Command(append(e2e.Text("task", "list"), tt.args...)...)
		if err := command.Run(); err != nil || got.Load() != "Bearer "+tt.want || (tt.warns == "") != !strings.Contains(errs.String(), readable) || !strings.Contains(errs.String(), tt.warns) {
			t.Errorf("%q sent %q and printed %s (%v), want %s and %q", tt.args, got.Load(), errs, err, tt.want, tt.warns)
		}
	}
	redirects.Store(true)
	c.Run(1, e2e.Text("redirects to "+elsewhere.URL), "task", "list")
	c.Run(1, e2e.Text("redirects to "+elsewhere.URL), "agent", "photos", "--once", "--", "true")
}

// The command sends what was asked for, and prints the token alone.
func TestTokenCreateCall(t *testing.T) {
	t.Parallel()
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body = r.Method + " " + r.URL.Path + " " + string(b)
		if strings.Contains(body, "again") {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"type":"/problems/unauthenticated","status":401,"detail":"for this token you must have logged in lately","log_in":"/auth/login?again=1"}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"token":"gw_new","id":"abcdefghijkl","user":"mia","role":"manager","scopes":["read"],"expires_at":"2027-01-01T00:00:00Z"}`)
	}))
	defer server.Close()
	run := func(c tokenCreateCmd) (out, errs string, err error) {
		var o, e bytes.Buffer
		c.account = account{URL: server.URL, Token: "gw_cli"}
		err = c.Run(t.Context(), &command.Streams{Out: &o, Errs: &e})
		return o.String(), e.String(), err
	}
	month := 720 * time.Hour
	out, errs, err := run(tokenCreateCmd{Label: "x", Expires: &month, Scopes: e2e.Text("read"), Tasks: e2e.Text("loans")})
	if err != nil || out != "gw_new\n" || !strings.Contains(errs, "Token abcdefghijkl is for mia (manager: read) until ") {
		t.Errorf("%q %q %v", out, errs, err)
	}
	if want := `POST /api/v1/tokens {"expires_in":"720h","label":"x","scopes":["read"],"tasks":["loans"]}`; body != want {
		t.Errorf("sent %s, want %s", body, want)
	}
	if _, _, err := run(tokenCreateCmd{Label: "x", User: "robot", Role: "agent", MemberOf: e2e.Text("desk")}); err != nil {
		t.Error(err)
	}
	if want := `POST /api/v1/tokens {"label":"x","scopes":["read","work"],"service":{"groups":["desk"],"role":"agent","user":"robot"}}`; body != want {
		t.Errorf("sent %s, want %s", body, want)
	}
	if _, _, err := run(tokenCreateCmd{Label: "again"}); err == nil || !strings.Contains(err.Error(), "`getwork login --again`") {
		t.Error(err)
	}
}
