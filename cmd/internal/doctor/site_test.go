package doctor

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/certs"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/idp"
	"getwork/cmd/internal/proxy"
	"getwork/schema/schematest/pgbouncer"
)

// This machine, its files, and the provider of identity.
func TestMachineChecks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	for name, mode := range map[string]os.FileMode{file: 0o640, filepath.Join(dir, "open"): 0o644} {
		if err := os.WriteFile(name, []byte("postgres://nobody@127.0.0.1:1/none\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	var wrong atomic.Pointer[idp.Hooks]
	p, err := idp.Start(idp.Config{Hooks: wrong.Load, Clients: []idp.Client{{ID: "getwork", Secret: "secret"}}})
	if err != nil {
		t.Fatal(err)
	}
	authority := certs.New(t)
	tls := func(end time.Duration) []string {
		dir := t.TempDir()
		f := authority.Write(dir, 2, time.Now().Add(end))
		return []string{"--auth", "token", "--trust-query-writers", "--tls-cert", f.Cert, "--tls-key", f.Key, "--public-url"}
	}
	const far = 90 * 24 * time.Hour
	oidc := []string{"--auth", "oidc", "--public-url", "http://127.0.0.1:8080", "--trust-query-writers", "--oidc-client-id", "getwork", "--oidc-client-secret-file", file, "--grant", "worker=desk", "--oidc-issuer", p.Issuer}
	w := &ward{t: t, limits: usual, words: strings.NewReplacer(), args: []string{"--database-url-file", file}}
	for _, b := range []broken{
		{check: "secrets", state: OK, says: "1 file"},
		{check: "secrets", args: []string{"--database-url-file", filepath.Join(dir, "open")}, state: Warning, says: "everybody on this machine may read"},
		{check: "secrets", args: []string{"--database-url-file", "", "--database-url", "postgres://nobody@127.0.0.1:1/none"}, state: Skipped, says: "no file"},
		{check: "files", args: []string{"--max-sockets", "100"}, state: OK, says: "which is room for"},
		{check: "files", args: []string{"--max-sockets", "2000000"}, state: Warning, says: "--max-sockets is 2000000"},
		{check: "certificate", state: Skipped, says: "serves no TLS"},
		{check: "certificate", args: append(tls(far), "https://localhost"), state: OK, says: "valid until"},
		{check: "certificate", args: append(tls(far), "https://getwork.bank.example"), state: Error, says: "does not name the host"},
		{check: "certificate", args: append(tls(24*time.Hour), "https://localhost"), state: Warning, says: "ends on"},
		{check: "certificate", args: append(tls(-time.Hour), "https://localhost"), state: Error, says: "ended on"},
		{check: "certificate", args: []string{"--tls-cert", file, "--tls-key", file}, state: Error, says: "can't be used"},
		{check: "identity-provider", state: Skipped, says: "without one"},
		{check: "identity-provider", args: oidc, state: OK, says: "answers, and has keys"},
		{check: "database", state: Error, says: "can't be reached"},
		{check: "listen", state: Skipped, says: "was not reached"},
	} {
		w.expect(b)
	}
	for says, hooks := range map[string]*idp.Hooks{
		"is another issuer's":                    {Discovery: func(d map[string]any) { d["issuer"] = "https://other.example" }},
		"signs with none of":                     {Discovery: func(d map[string]any) { d["id_token_signing_alg_values_supported"] = []string{"HS256"} }},
		"does not offer client_secret_basic":     {Discovery: func(d map[string]any) { d["token_endpoint_auth_methods_supported"] = []string{"none"} }},
		"it answers with status 500":             {Before: refuse("/.well-known/openid-configuration")},
		"can't be used":                          {Before: refuse("/jwks")},
		"its discovery document has no jwks_uri": {Discovery: func(d map[string]any) { delete(d, "jwks_uri") }},
	} {
		wrong.Store(hooks)
		w.expect(broken{check: "identity-provider", args: oidc, state: Error, says: says})
	}
	p.Close()
	w.expect(broken{check: "identity-provider", args: oidc, state: Error, says: "can't be used"})
}

// refuse has a provider answer 500 at a path.
func refuse(path string) func(http.ResponseWriter, *http.Request) bool {
	return func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		rw.WriteHeader(http.StatusInternalServerError)
		return true
	}
}

// A transaction pooler where the flags say that there is none, and where there must be none.
func TestPoolerChecks(t *testing.T) {
	t.Parallel()
	w := admit(t)
	bouncer := pgbouncer.Start(t, w.url, pgbouncer.Options{})
	through := []string{"--database-url", bouncer.URL}
	pooled := []string{"--database-url", bouncer.URL, "--pooled", "--listen-database-url", w.url}
	deaf := []string{"--database-url", bouncer.URL, "--pooled", "--listen-database-url", bouncer.URL}
	for _, b := range []broken{
		{check: "pooler", args: through, state: Error, says: "loses settings and prepared statements"},
		{check: "database", args: through, state: OK, says: "answers in"}, // and the other checks are made all the same
		{check: "schema", args: through, state: OK, says: "at version"},
		{check: "pooler", args: pooled, state: OK, says: "as --pooled says"},
		{check: "direct", args: pooled, state: OK, says: "leads to PostgreSQL itself"},
		{check: "listen", args: pooled, state: OK, says: "is heard"},
		{check: "connections", args: pooled, state: Skipped, says: "the pooler decides"},
		{check: "direct", args: deaf, state: Error, says: "where LISTEN does not work"},
		{check: "listen", args: deaf, state: Error, says: "LISTEN does not work here"},
		{check: "direct", args: []string{"--database-url", bouncer.URL, "--pooled", "--no-listen"}, state: OK, says: "--no-listen needs none"},
		{check: "query-database", args: []string{"--query-database-url", bouncer.URL}, state: Error, says: "where every ranking query fails without --pooled"},
		{check: "query-role", args: []string{"--query-role", "", "--query-database-url", bouncer.URL}, state: Skipped, says: "a login of their own"},
		{check: "query-database", args: append(slices.Clone(pooled), "--query-database-url", bouncer.URL), state: OK, says: "connected in"},
		// The node can't override what the database sets.
		{check: "time-outs", args: pooled, sql: `alter database "DATABASE" set statement_timeout = '5s'`, state: Error, says: "statement_timeout = 5s"},
	} {
		if b.sql != "" {
			bouncer.Restart()
		}
		w.expect(b)
	}
}

// Nodes are known by their sessions, and asked by their addresses.
func TestNodeChecks(t *testing.T) {
	t.Parallel()
	w := admit(t)
	w.expect(broken{check: "nodes", state: OK, says: "none is connected"})
	node := cluster.Start(t, 1, cluster.Options{DatabaseURL: w.url})[0]
	w.expect(broken{check: "nodes", args: []string{"--node-url", node.URL}, state: OK, says: "connected: 1 node of version 0.1.0-dev"})
	w.expect(broken{check: "nodes", args: []string{"--node-url", node.URL}, state: OK, says: "the clock of " + node.URL + " agrees"})
	w.expect(broken{check: "nodes", args: []string{"--node-url", node.URL}, limits: func(l *limits) { l.clock = -time.Hour }, state: Error, says: "the clock of " + node.URL})
	other, err := pgx.Connect(t.Context(), w.url+"&application_name=getwork%20n0123456789ab%209.9.9")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	w.expect(broken{check: "nodes", state: Warning, says: "1 node of version 0.1.0-dev, 1 node of version 9.9.9"})
	w.expect(broken{check: "connections", state: OK, says: "2 nodes with up to 18 connections need 36"})
	node.Kill()
	w.expect(broken{check: "nodes", args: []string{"--node-url", node.URL}, state: Error, says: node.URL + " does not answer"})

	// A node that has lost its database, and something else that listens there.
	target, err := proxy.Target(w.url)
	if err != nil {
		t.Fatal(err)
	}
	line, err := proxy.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	through, err := line.URL(w.url)
	if err != nil {
		t.Fatal(err)
	}
	cutOff := cluster.Start(t, 1, cluster.Options{DatabaseURL: through})[0]
	line.Refuse(true)
	line.Cut()
	e2e.Await(t, "the node is not ready", e2e.Soon, func() bool { return cutOff.Ready() == http.StatusServiceUnavailable })
	w.expect(broken{check: "nodes", args: []string{"--node-url", cutOff.URL}, state: Error, says: cutOff.URL + " is not ready: it answers with status 503"})
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	w.expect(broken{check: "nodes", args: []string{"--node-url", page.URL}, state: Error, says: page.URL + " is not ready: it answers with status 404"})
	timeless := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Header()["Date"] = nil }))
	defer timeless.Close()
	w.expect(broken{check: "nodes", args: []string{"--node-url", timeless.URL}, state: Warning, says: timeless.URL + " does not say what time it is there"})
}

// Tasks whose query is wrong, slow or forgotten, and requests that nobody serves.
func TestTaskChecks(t *testing.T) {
	t.Parallel()
	w := admit(t)
	w.execute(`insert into getwork.task overriding system value values (1); select nextval(pg_get_serial_sequence('getwork.task', 'id')); insert into getwork.task_version (task_id, version, name, query, query_timeout, fresh_for, created_by) values (1, 1, 'loans', 'select 1 as item', '1 minute', '10 seconds', 'mia'); insert into getwork.task_state (task_id, name, version) values (1, 'loans', 1)`)
	request := `insert into getwork.work_requested (task_id, user_name, wanted, requested, created_at) values (1, 'tracy', 1, 1, clock_timestamp() - interval '2 hours')`
	held := `insert into getwork.work (task_id, item, user_name, lease, lease_expires_at, warn_at) values (1, 'a', 'tracy', '30 seconds', clock_timestamp() - interval '10 minutes', clock_timestamp() - interval '11 minutes')`
	for _, b := range []broken{
		{check: "failed-tasks", sql: "update getwork.task_state set failures = 2, failed_until = now(), last_error = 'column x does not exist'", state: Error, says: "the last run of loans failed: column x does not exist"},
		{check: "failed-tasks", sql: "update getwork.task_state set paused = true", state: OK, says: "0 tasks looked at"},
		{check: "failed-tasks", sql: "update getwork.task_state set paused = false", state: Error, says: "loans", mend: "update getwork.task_state set failures = 0, failed_until = null, last_error = null"},
		{check: "unused-tasks", limits: func(l *limits) { l.unused = 0 }, state: Warning, says: "loans has never run"},
		{check: "unused-tasks", sql: "update getwork.task_version set created_at = now() - interval '2 days'", state: Warning, says: "made 48h0m", mend: "insert into getwork.run (task_id, version, node, state, finished_at, snapshot, given, blocked, passed_over, candidates, cut) values (1, 1, 'n', 'finished', now(), pg_current_snapshot(), 0, 0, 0, 0, false)"},
		{check: "needs", sql: "update getwork.run set needs = '[{\"needs\":[\"french\",\"legal\"],\"items\":3}]'; update getwork.task_state set last_run = (select max(id) from getwork.run)", state: Warning, says: "3 items of loans for nobody: nobody known has all of french, legal", mend: "update getwork.run set needs = null; update getwork.task_state set last_run = null"},
		{check: "slow-tasks", sql: "update getwork.task_state set usual = '20 seconds', longest = '21 seconds'", state: Warning, says: "loans usually takes 20s, and its result is fresh for 10s"},
		{check: "slow-tasks", sql: "update getwork.task_state set usual = '1 second', longest = '55 seconds'", state: Warning, says: "loans took up to 55s lately, and its query_timeout is 1m", mend: "update getwork.task_state set longest = '2 seconds'"},
		{check: "waiting", sql: request, state: Error, says: "somebody has waited for work for 1h", mend: "update getwork.work_requested set state = 'cancelled', requested = 0, completed_at = now()"},
		{check: "waiting", sql: "insert into getwork.task_version (task_id, version, name, query, query_timeout, created_by) values (1, 2, 'loans', 'select 1 as item', '1 minute', 'mia'); update getwork.task_state set version = 2; update getwork.task_version set query_timeout = '24 hours' where version = 1; " + request, state: Error, says: "somebody has waited for work for 1h", mend: "update getwork.work_requested set state = 'cancelled', requested = 0, completed_at = now()"},
		{check: "webhooks", sql: "insert into getwork.hook (url, events, secret, created_by) values ('https://receiver.example/', '{work.closed}', '\\x00', 'mia')", state: Error, says: "the triggers that record their events are switched off", mend: "select getwork.switch_hooks()"},
		{check: "webhooks", sql: "delete from getwork.hook; select getwork.switch_hooks(); revoke execute on function getwork.switch_hooks() from LOGIN", state: Warning, says: "LOGIN can make no web hooks", mend: "grant execute on function getwork.switch_hooks() to LOGIN"},
		{check: "waiting", sql: held, state: Error, says: "a lease ended 10m", mend: "delete from getwork.work"},
	} {
		w.expect(b)
	}
}
