package health_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/certs"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/node"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// A container's health command needs nothing but the environment of serve. A node without its database is alive and not ready,
// one that has ended is neither.
func TestHealth(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	node := cluster.Start(t, 1, cluster.Options{DatabaseURL: address})[0]
	listen := strings.TrimPrefix(node.URL, "http://")
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_LISTEN=" + listen, "GETWORK_MAX_RUNS=1"}}
	c.Run(0, e2e.Text("ready\n"), "health")
	c.Run(0, e2e.Text("ok\n"), "health", "--live")
	c.Run(0, e2e.Text("ready\n"), "health", "--url", node.URL)

	lock(t, address)
	e2e.Await(t, "the node is not ready", e2e.Soon, func() bool {
		command, _, _ := c.Command("health")
		return command.Run() != nil
	})
	c.Run(1, e2e.Text("status 503", "not ready"), "health")
	c.Run(0, e2e.Text("ok\n"), "health", "--live")

	node.Kill()
	c.Run(1, e2e.Text("does not answer", "connection refused"), "health", "--live")
	c.Run(2, e2e.Text("--url"), "health", "--listen", "127.0.0.1:0")
	c.Run(2, e2e.Text("--url must be an address"), "health", "--url", "localhost")
}

// A node whose certificate names another host is asked over TLS all the same, at whichever of this machine's addresses it serves on;
// a node that --url names has to prove its name.
func TestHealthOverTLS(t *testing.T) {
	t.Parallel()
	f := certs.New(t).Write(t.TempDir(), 2, time.Time{}, "getwork.bank.example")
	options := node.Options{Binary: cluster.Binary(t), DatabaseURL: schematest.URL(t), Args: []string{"--tls-cert", f.Cert, "--tls-key", f.Key}}
	outside := ownAddress(t)
	if outside != "" {
		options.Args = append(options.Args, "--listen", outside+":0", "--auth", "token", "--public-url", "https://getwork.bank.example", "--trust-query-writers")
		options.DatabaseURL = schematest.Plain(t)
	}
	n := node.New(options)
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	const sign = "listening on https://"
	e2e.Await(t, "the node listens", node.StartWithin, func() bool { return strings.Contains(n.Output(), sign) })
	_, listen, _ := strings.Cut(n.Output(), sign)
	listen, _, _ = strings.Cut(listen, "\n")
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_LISTEN=" + listen, "GETWORK_TLS_CERT=" + f.Cert}}
	c.Run(0, e2e.Text("ready\n"), "health")
	if outside != "" {
		c.Run(1, e2e.Text("certificate"), "health", "--url", "https://"+listen)
	}
	c.Env = c.Env[:1]
	c.Run(1, e2e.Text("status 400", "HTTPS"), "health")
}

// ownAddress returns an address of this machine in a network, if it has one.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	return ""
}

// A node that accepts connections and says nothing is not healthy, and the command ends in time.
func TestHealthOfASilentNode(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t)}
	c.Run(1, e2e.Text("does not answer within 200ms"), "health", "--listen", silent.Addr().String(), "--timeout", "200ms")
}

// lock keeps everybody out of a database.
func lock(t *testing.T, address string) {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	name := config.Database
	config.Database = "postgres"
	admin, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	quoted := pgx.Identifier{name}.Sanitize()
	if _, err := admin.Exec(t.Context(), `alter database `+quoted+` allow_connections false`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		admin, err := pgx.ConnectConfig(context.Background(), config)
		if err != nil {
			return
		}
		defer admin.Close(context.Background())
		_, _ = admin.Exec(context.Background(), `alter database `+quoted+` allow_connections true`)
	})
	if _, err := admin.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where datname = $1`, name); err != nil {
		t.Fatal(err)
	}
}
