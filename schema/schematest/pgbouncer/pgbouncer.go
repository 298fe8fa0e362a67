// Package pgbouncer puts a PgBouncer in transaction mode in front of a test's PostgreSQL, as many installations have it.
//
//	url := schematest.URL(t)
//	bouncer := pgbouncer.Start(t, url, pgbouncer.Options{})
//	pool, err := pgxpool.New(t.Context(), bouncer.URL)
//
// It listens on a free port of the loopback address, and can be paused, killed and started again. It ends with its test, or
// with the test binary after kill -9. It leaves no file behind, and does not ask for passwords.
package pgbouncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest/timeout"
)

const (
	// startWithin is generous: a machine that runs many tests at once is slow.
	startWithin = 30 * time.Second

	// admin is the login of its console.
	admin = "admin"
)

// Options are the settings of a PgBouncer.
type Options struct {
	PoolSize int               // connections to the server for each database; 0: 5
	Settings map[string]string // more of pgbouncer.ini, such as query_wait_timeout
}

// Bouncer is a running PgBouncer.
type Bouncer struct {
	URL string // of the database behind it; the same after a Restart

	t       testing.TB
	program string
	ini     string
	port    int
	life    *life
}

// Program returns the program's path, or "" if it is not installed.
func Program() string {
	if found, err := exec.LookPath("pgbouncer"); err == nil {
		return found
	}
	const debian = "/usr/sbin/pgbouncer" // not in users' PATH
	if _, err := os.Stat(debian); err == nil {
		return debian
	}
	return ""
}

// Start starts a PgBouncer in front of the server of that URL, and returns when it answers. It skips the test if the program
// is not installed.
func Start(t testing.TB, direct string, o Options) *Bouncer {
	t.Helper()
	program := Program()
	if program == "" {
		t.Skip("needs PgBouncer: apt-get install pgbouncer")
	}
	server, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	b := &Bouncer{t: t, program: program}
	t.Cleanup(b.cleanUp)
	for attempt := 1; ; attempt++ { // another program may take the port that was free
		b.port = freePort(t)
		b.ini = ini(server, b.port, o)
		if err = b.start(); err == nil {
			break
		}
		if attempt == 5 {
			t.Fatal(err)
		}
	}
	b.URL = b.url(server.Database)
	return b
}

func (b *Bouncer) url(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(admin), Host: fmt.Sprint("127.0.0.1:", b.port), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// ini returns the text of pgbouncer.ini. Every login becomes that of the server's URL.
func ini(server *pgx.ConnConfig, port int, o Options) string {
	all := map[string]string{
		"listen_addr":       "127.0.0.1",
		"listen_port":       strconv.Itoa(port),
		"unix_socket_dir":   "",
		"auth_type":         "any",
		"admin_users":       admin,
		"pool_mode":         "transaction",
		"default_pool_size": strconv.Itoa(max(o.PoolSize, 0)),
		"max_client_conn":   "1000",
		// A real one needs this, too: otherwise it refuses logins for 15 s after the server was away.
		"server_login_retry": "1",
		"server_tls_sslmode": "disable",
	}
	if o.PoolSize == 0 {
		all["default_pool_size"] = "5"
	}
	maps.Copy(all, o.Settings)
	var text strings.Builder
	text.WriteString("[databases]\n* =")
	for _, part := range [][2]string{
		{"host", server.Host}, {"port", strconv.Itoa(int(server.Port))}, {"user", server.User}, {"password", server.Password},
	} {
		if part[1] != "" {
			fmt.Fprintf(&text, " %s='%s'", part[0], strings.ReplaceAll(part[1], "'", "''"))
		}
	}
	text.WriteString("\n[pgbouncer]\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s = %s\n", name, all[name])
	}
	return text.String()
}

// Tell executes a command on its console, such as "pause", and fails the test if the console refuses it.
func (b *Bouncer) Tell(command string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(startWithin))
	defer cancel()
	if err := b.tell(ctx, command); err != nil {
		b.t.Fatalf("pgbouncer: %s: %v\n%s", command, err, b.Output())
	}
}

func (b *Bouncer) tell(ctx context.Context, command string) error {
	config, err := pgx.ParseConfig(b.url("pgbouncer"))
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, command).ReadAll()
	return err
}

// Output returns the present process's output so far.
func (b *Bouncer) Output() string { return b.life.out.String() }

// Kill ends it by SIGKILL. Its clients and servers lose their connections.
func (b *Bouncer) Kill() {
	if b.life != nil {
		b.life.end()
	}
}

// cleanUp ends it, and logs its output if the test failed.
func (b *Bouncer) cleanUp() {
	if b.life == nil {
		return
	}
	select {
	case <-b.life.done:
		b.t.Logf("pgbouncer had ended: %v", b.life.err)
	default:
	}
	b.Kill()
	if b.t.Failed() {
		b.t.Logf("pgbouncer printed:\n%s", b.Output())
	}
}

// Restart starts it again at the same address, after killing it if it still runs.
func (b *Bouncer) Restart() {
	b.t.Helper()
	b.Kill()
	if err := b.start(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *Bouncer) start() error {
	life, err := launch(b.program, b.ini)
	if err != nil {
		return fmt.Errorf("start pgbouncer: %w", err)
	}
	b.life = life
	defer life.forget()
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(startWithin))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = b.tell(ctx, "show version"); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-life.done:
			return fmt.Errorf("pgbouncer ended at its start: %w\n%s", life.err, life.out.String())
		case <-ctx.Done():
			life.end()
			return errors.Join(fmt.Errorf("pgbouncer did not answer within %v\n%s", timeout.Scale(startWithin), life.out.String()), err)
		}
	}
}
