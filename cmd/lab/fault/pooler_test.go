package fault

import (
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
	"getwork/schema/schematest/pgbouncer"
)

// takesAll configures a PgBouncer that accepts the settings of a session, and forgets them.
var takesAll = map[string]string{"ignore_startup_parameters": "tcp_keepalives_idle,tcp_keepalives_interval,tcp_keepalives_count,tcp_user_timeout," +
	"lock_timeout,enable_seqscan,enable_bitmapscan,jit,statement_timeout,idle_session_timeout,default_transaction_read_only"}

// bouncers are PgBouncer with its defaults, and one that accepts all settings.
var bouncers = map[string]map[string]string{"refuses settings": nil, "ignores settings": takesAll}

// fails runs the program, which must end with status 1, and returns its output.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), cluster.Binary(t), args...).CombinedOutput()
	if cluster.Exit(err) != 1 {
		t.Fatalf("getwork %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// ready reads /readyz?verbose.
func ready(t *testing.T, node *cluster.Node) string {
	t.Helper()
	a, err := node.Client("").Do(t.Context(), "GET", "/readyz?verbose", nil, "X-Getwork-User", "maria", "X-Getwork-Role", "manager")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", a.Status, a.Body)
}

// The URL for LISTEN leads through the pooler by mistake: at its start the node says so, and what to do. It tells its
// sockets that it lags, and serves by polling.
func TestListenThroughAPooler(t *testing.T) {
	t.Parallel()
	for name, settings := range bouncers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bouncer := pgbouncer.Start(t, schematest.URL(t), pgbouncer.Options{Settings: settings})
			nodes := cluster.Start(t, 2, cluster.Options{DatabaseURL: bouncer.URL, Args: []string{"--pooled", "--listen-database-url", bouncer.URL}})
			s := &site{&e2e.Site{T: t, Nodes: nodes}}
			s.Task("verify", e2e.Heavy(1, 10))
			for _, node := range nodes {
				e2e.Await(t, "the node says so", e2e.Soon, func() bool { return strings.Contains(node.Output(), "level=ERROR") })
				if n := strings.Count(node.Output(), "level=ERROR"); n != 1 || !strings.Contains(node.Output(), "--listen-database-url goes through a transaction pooler") {
					t.Errorf("%d errors:\n%s", n, node.Output())
				}
				e2e.Await(t, "the node is ready, and says what is wrong", e2e.Soon, func() bool {
					said := ready(t, node)
					return strings.HasPrefix(said, "200") && strings.Contains(said, "listener: --listen-database-url goes through")
				})
			}
			socket := s.Dial("oliver", 0)
			s.Hear(socket, "lagging", e2e.Soon, nodeIs(assign.Lagging))
			r := s.Click("oliver", 1, 2)
			s.Hear(socket, "snapshot with the work", 20*time.Second, func(e cluster.Event) bool { return e.Snapshot != nil && len(e.Snapshot.Work) == 2 })
			s.Served("oliver", 0, r.ID, e2e.Soon)
		})
	}
}

// The node does not know that its URL leads through a pooler: it does not start, and says which flag to add.
func TestPooledIsForgotten(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for name, settings := range bouncers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := schematest.URL(t)
			bouncer := pgbouncer.Start(t, direct, pgbouncer.Options{Settings: settings})
			for _, more := range [][]string{nil, {"--listen-database-url", direct}, {"--no-listen"}} {
				said := fails(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--database-url", bouncer.URL}, more...)...)
				if !strings.Contains(said, "--database-url goes through a transaction pooler") || !strings.Contains(said, "add --pooled") {
					t.Errorf("%v: %s", more, said)
				}
			}
			said := fails(t, "serve", "--listen", "127.0.0.1:0", "--database-url", direct, "--query-database-url", bouncer.URL)
			if !strings.Contains(said, "--query-database-url goes through a transaction pooler") || !strings.Contains(said, "add --pooled") {
				t.Error(said)
			}
		})
	}
}

// Without LISTEN a node needs nothing except the pooler; but it does not migrate through it.
func TestPollingThroughAPooler(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	args := []string{"--pooled", "--no-listen"}
	bouncer := pgbouncer.Start(t, schematest.URL(t), pgbouncer.Options{})
	s := &site{&e2e.Site{T: t, Nodes: cluster.Start(t, 1, cluster.Options{DatabaseURL: bouncer.URL, Args: args})}}
	s.Task("verify", e2e.Heavy(0.5, 10))
	s.Served("oliver", 0, s.Click("oliver", 0, 2).ID, 20*time.Second)
	said := regexp.MustCompile("(?m)^.*the login has a right that a ranking query must not have.*$").ReplaceAllString(s.Nodes[0].Output(), "") // it is the tests' superuser
	if strings.Contains(said, "level=ERROR") || strings.Contains(said, "level=WARN") {
		t.Errorf("it complains:\n%s", said)
	}

	empty := pgbouncer.Start(t, schematest.Empty(t), pgbouncer.Options{})
	for _, command := range [][]string{append([]string{"serve", "--listen", "127.0.0.1:0"}, args...), {"migrate", "up"}, {"migrate", "down", "--to", "0", "--yes"}} {
		if said := fails(t, append(command, "--database-url", empty.URL)...); !strings.Contains(said, "migrations need a direct connection") {
			t.Errorf("getwork %v: %s", command, said)
		}
	}
	out, err := exec.CommandContext(t.Context(), cluster.Binary(t), "migrate", "status", "--database-url", empty.URL).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "is at version 0") {
		t.Errorf("migrate status: %s, %v", out, err)
	}
}

// A pooler in session mode preserves what LISTEN and migrations need.
func TestListenThroughASessionPooler(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.Empty(t)
	settings := map[string]string{"pool_mode": "session"}
	session := pgbouncer.Start(t, url, pgbouncer.Options{Settings: settings})
	bouncer := pgbouncer.Start(t, url, pgbouncer.Options{})
	node := cluster.Start(t, 1, cluster.Options{DatabaseURL: bouncer.URL, Args: []string{"--pooled", "--listen-database-url", session.URL}})[0]
	e2e.Await(t, "it listens", time.Minute, func() bool { return strings.Contains(ready(t, node), "listener: ok") })
}

// The pooler is killed while people wait, and starts again: nodes answer 503 meanwhile, and then serve the waiting
// requests.
func TestPoolerKilled(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	bouncer := pgbouncer.Start(t, url, pgbouncer.Options{})
	s := &site{&e2e.Site{T: t, Nodes: cluster.Start(t, 2, cluster.Options{DatabaseURL: bouncer.URL, Args: []string{"--pooled", "--listen-database-url", url}})}}
	s.Task("verify", e2e.Heavy(1, 100))
	socket := s.Dial("oliver", 1)
	his, hers := s.Click("oliver", 0, 2), s.Click("tracy", 1, 3)
	bouncer.Kill()
	s.unavailable()
	bouncer.Restart()
	s.Served("oliver", 1, his.ID, time.Minute)
	s.Served("tracy", 0, hers.ID, e2e.Soon)
	s.Hear(socket, "push on the socket of before", e2e.Soon, got(his))
	for _, node := range s.Nodes {
		e2e.Await(t, "ready again", time.Minute, func() bool { return node.Ready() == http.StatusOK })
	}
}

// The pooler is paused, as its operator does to restart PostgreSQL: nobody waits for it longer than for a database that
// is away, and everything goes on when it is resumed. Connections that it ends because of their age disturb nobody.
func TestPoolerPaused(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	bouncer := pgbouncer.Start(t, url, pgbouncer.Options{Settings: map[string]string{"query_wait_timeout": "1", "server_lifetime": "1"}})
	s := &site{&e2e.Site{T: t, Nodes: cluster.Start(t, 2, cluster.Options{DatabaseURL: bouncer.URL, Args: []string{"--pooled", "--listen-database-url", url}})}}
	s.Task("verify", "select n as item from generate_series(1, 100) n")
	s.Served("oliver", 0, s.Click("oliver", 0, 1).ID, 20*time.Second)
	bouncer.Tell("pause")
	began := time.Now()
	s.unavailable()
	t.Logf("refused after %v", time.Since(began))
	bouncer.Tell("resume")
	for i, node := range s.Nodes {
		e2e.Await(t, "ready again", time.Minute, func() bool { return node.Ready() == http.StatusOK })
		s.Served("tracy", 1-i, s.Click("tracy", i, 2).ID, 20*time.Second)
	}
}

// The pooler has fewer connections to the server than there are slots for queries, and all slots are needed at once:
// nothing deadlocks, and all are served in turn.
func TestPoolerWithFewConnections(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	bouncer := pgbouncer.Start(t, url, pgbouncer.Options{PoolSize: 3})
	s := &site{&e2e.Site{T: t, Nodes: cluster.Start(t, 2, cluster.Options{DatabaseURL: bouncer.URL, Args: []string{"--pooled", "--listen-database-url", url, "--max-runs", "4"}})}}
	tasks := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, task := range tasks {
		s.Task(task, e2e.Heavy(0.5, 100))
	}
	began, still := time.Now(), s.Standstill()
	for range 2 {
		var clicking sync.WaitGroup
		for i, task := range tasks {
			clicking.Go(func() {
				r, a, err := s.As("oliver", i%2).GetWork(t.Context(), task, 2, "Prefer", "wait=60")
				if err != nil || a.Status != 201 || len(r.Work) != 2 {
					t.Errorf("click on %s: %d %s, %v", task, a.Status, a.Body, err)
				}
			})
		}
		clicking.Wait()
	}
	took := time.Since(began) - still()
	t.Logf("all were served after %v", took)
	if took > 20*time.Second { // a transaction that waits for another is ended after 20 s
		t.Errorf("all were served only after %v", took)
	}
}
