//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"getwork/schema/postgres"
	"getwork/schema/schematest/timeout"
)

// childDir, when set, makes the test binary a process that starts a server there, prints its PID, and waits to
// be killed.
const childDir = "GETWORK_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func child(dir string) {
	server, err := postgres.Start(context.Background(), postgres.Config{Dir: dir, Fast: true, Remove: os.Getenv("REMOVE") != ""})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(server.PID())
	<-server.Done()
}

// folder makes a folder that the user postgres can reach. If the test runs as root, t.TempDir is none.
func folder(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server of its own: not with -short")
	}
	dir, err := os.MkdirTemp("", "getwork-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, cfg postgres.Config) *postgres.Server {
	t.Helper()
	cfg.Fast = true
	server, err := postgres.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, server) })
	return server
}

func stop(t *testing.T, server *postgres.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(time.Minute))
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// query runs one statement in a connection of its own.
func query(t *testing.T, server *postgres.Server, sql string) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(values, ",")
}

// runs reports whether a process exists; a zombie does not count.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// eventually asks until the answer is yes.
func eventually(t *testing.T, what string, within time.Duration, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(timeout.Scale(within))
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}

func TestStopAndStartKeepData(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	first := start(t, postgres.Config{Dir: dir})
	url := first.URL("postgres")
	query(t, first, `create table kept as select 'still here' as note`)
	if got := query(t, first, `show listen_addresses`); got != "" {
		t.Errorf("it listens on %q", got)
	}
	if got := query(t, first, `select pg_encoding_to_char(encoding) from pg_database where datname = 'postgres'`); got != "UTF8" {
		t.Errorf("encoding %s", got)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is open to others: %v, %v", info.Mode(), err)
	}
	if _, err := postgres.Start(context.Background(), postgres.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server in the same folder: %v", err)
	}
	stop(t, first)
	if first.PID() != 0 {
		t.Error("it has a PID when stopped")
	}
	begin := time.Now()
	second := start(t, postgres.Config{Dir: dir})
	t.Logf("second start: %v", time.Since(begin))
	if second.URL("postgres") != url {
		t.Errorf("URL %s, was %s", second.URL("postgres"), url)
	}
	if got := query(t, second, `select note from kept`); got != "still here" {
		t.Errorf("note %q", got)
	}
}

// Variables for clients of another server don't keep this process from its own. It must not run beside tests that read them.
func TestVariablesOfClientsDoNotCount(t *testing.T) {
	t.Setenv("PGCHANNELBINDING", "require")
	t.Setenv("PGOPTIONS", "-c no_such_setting=1")
	t.Setenv("PGSERVICE", "nowhere")
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(20*time.Second))
	defer cancel()
	server, err := postgres.Start(ctx, postgres.Config{Dir: folder(t), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, server)
	if _, err := server.LoginURL(ctx, "postgres"); err != nil {
		t.Error(err)
	}
	t.Setenv("PGPASSFILE", "kept")
	postgres.DropVariables()
	for _, name := range []string{"PGCHANNELBINDING", "PGOPTIONS", "PGSERVICE"} {
		if value, set := os.LookupEnv(name); set {
			t.Errorf("%s is still %s", name, value)
		}
	}
	if os.Getenv("PGPASSFILE") != "kept" {
		t.Error("a query database would lose its passwords")
	}
}

func TestCrashHaltRestart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := start(t, postgres.Config{Dir: folder(t), TCP: true, Remove: true, Parameters: map[string]string{"synchronous_commit": "on", "work_mem": "7MB"}})
	url := server.URL("postgres")
	if !strings.Contains(url, "127.0.0.1") {
		t.Errorf("URL %s", url)
	}
	query(t, server, `create table kept as select 'still here' as note`)
	for name, end := range map[string]func(){"crash": server.Crash, "halt": func() { server.Halt(ctx) }, "nothing": func() {}} {
		done, pid := server.Done(), server.PID()
		end()
		if err := server.Restart(ctx); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
		<-done
		if runs(pid) {
			t.Errorf("after %s the old postmaster runs", name)
		}
		if server.URL("postgres") != url {
			t.Errorf("after %s it is at another address", name)
		}
		if got := query(t, server, `select note || current_setting('work_mem') from kept`); got != "still here7MB" {
			t.Errorf("after %s: %q", name, got)
		}
	}
}

// TCP connections need the password.
func TestTCPNeedsThePassword(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Config{Dir: folder(t), TCP: true, Remove: true})
	conf, err := pgx.ParseConfig(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	conf.Password = "wrong"
	if conn, err := pgx.ConnectConfig(context.Background(), conf); err == nil {
		conn.Close(context.Background())
		t.Error("it let us in")
	}
}

func TestStopRemovesAThrowaway(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	server := start(t, postgres.Config{Dir: dir, Remove: true})
	stop(t, server)
	if !missing(dir) {
		t.Error("the folder is still there")
	}
	if err := server.Restart(context.Background()); err == nil {
		t.Error("it started again after Stop")
	}
}

// If the folder's path is too long for a socket, the socket has a folder of its own, which is deleted with the server.
func TestLongPath(t *testing.T) {
	t.Parallel()
	outer := folder(t)
	if err := os.Chmod(outer, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(outer, strings.Repeat("long", 25), "data of the bank")
	server := start(t, postgres.Config{Dir: dir})
	conf, err := pgx.ParseConfig(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(conf.Host, dir) {
		t.Fatalf("the socket is in %s", conf.Host)
	}
	query(t, server, `select 'yes'`)
	stop(t, server)
	if !missing(conf.Host) {
		t.Errorf("%s is left behind", conf.Host)
	}
	again := start(t, postgres.Config{Dir: dir})
	if again.URL("x") != server.URL("x") {
		t.Errorf("URL %s, was %s", again.URL("x"), server.URL("x"))
	}
}
