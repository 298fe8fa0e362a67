//go:build unix

package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"getwork/schema/postgres"
	"getwork/schema/schematest/timeout"
)

// childDir, when set, makes the test binary a process that starts a server there, tells its PID, and waits to
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

// folder makes a folder that user postgres can reach, which t.TempDir is not for root.
func folder(t *testing.T) string {
	t.Helper()
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

// runs tells whether a process exists; one that has ended and is not collected yet doesn't.
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

// Without the password nobody gets in by TCP.
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

// A path too long for a socket gives the socket a folder of its own, which goes with the server.
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

// An initdb that was broken off leaves data.init, never data.
func TestHalfMadeDataIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	start(t, postgres.Config{Dir: dir}).Stop(context.Background())
	for _, err := range []error{
		os.RemoveAll(filepath.Join(dir, "data")),
		os.MkdirAll(filepath.Join(dir, "data.init", "base"), 0o700),
		os.WriteFile(filepath.Join(dir, "data.init", "PG_VERSION"), []byte("15\n"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	query(t, start(t, postgres.Config{Dir: dir}), `select 'yes'`)
}

func TestForeignFolderIsRefused(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Start(context.Background(), postgres.Config{Dir: dir, Remove: true}); err == nil {
		t.Error("it moved in")
	}
	if missing(filepath.Join(dir, "thesis.txt")) {
		t.Error("it deleted what was there")
	}
}

// What a machine that lost its power leaves: a lock file, whose process id may belong to anybody by now.
func TestStaleLockFile(t *testing.T) {
	t.Parallel()
	sleeper := exec.Command("sleep", "600")
	if os.Geteuid() == 0 {
		// Of the same user as PostgreSQL, who otherwise ignores it.
		sleeper.SysProcAttr = &syscall.SysProcAttr{Credential: ownerOfServers(t)}
	}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleeper.Wait()
	defer sleeper.Process.Kill()
	dir := folder(t)
	lock := filepath.Join(dir, "data", "postmaster.pid")
	server := start(t, postgres.Config{Dir: dir})
	text, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{sleeper.Process.Pid, 1 << 30, os.Getpid(), 1} {
		server.Crash()
		_, rest, _ := strings.Cut(string(text), "\n")
		if err := os.WriteFile(lock, []byte(strconv.Itoa(pid)+"\n"+rest), 0o600); err != nil {
			t.Fatal(err)
		}
		give(t, lock)
		if err := server.Restart(context.Background()); err != nil {
			t.Fatalf("lock file with process %d: %v", pid, err)
		}
		query(t, server, `select 'yes'`)
	}
}

// A postmaster that is killed with -9 leaves everything as it was; the next start recovers.
func TestPostmasterKilled(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Config{Dir: folder(t), Parameters: map[string]string{"synchronous_commit": "on"}})
	query(t, server, `create table kept as select 'still here' as note`)
	if err := syscall.Kill(server.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-server.Done()
	if err := server.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, server, `select note from kept`); got != "still here" {
		t.Errorf("note %q", got)
	}
}

func TestStartIsGivenUpWithItsContext(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	server, err := postgres.Start(ctx, postgres.Config{Dir: dir, Fast: true, Remove: true})
	if err == nil {
		stop(t, server)
		t.Skip("the machine is faster than that")
	}
	if !missing(dir) {
		t.Error("the folder is still there")
	}
}

func TestWrongSettingIsTold(t *testing.T) {
	t.Parallel()
	_, err := postgres.Start(context.Background(), postgres.Config{
		Dir: folder(t), Fast: true, Remove: true, Parameters: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("error %v", err)
	}
}

// spawn starts another process with a server of its own, and returns both ids.
func spawn(t *testing.T, dir string, remove bool) (parent *exec.Cmd, postmaster int) {
	t.Helper()
	parent = exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), childDir+"="+dir)
	if remove {
		parent.Env = append(parent.Env, "REMOVE=1")
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if postmaster, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		parent.Process.Kill()
		parent.Wait()
		t.Fatalf("the other process says %q", line)
	}
	return parent, postmaster
}

// After kill -9 of its owner no server is left, though a client is connected and busy.
func TestNoServerOutlivesItsParent(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	parent, postmaster := spawn(t, dir, true)
	if !runs(postmaster) {
		t.Fatal("no server")
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "postgres://postgres@/postgres?host="+dir)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	busy := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, `select pg_sleep(600)`)
		busy <- err
	}()
	parent.Process.Kill()
	parent.Wait()
	eventually(t, "the server ends", 30*time.Second, func() bool { return !runs(postmaster) })
	if err := <-busy; err == nil {
		t.Error("the query ended as if nothing had happened")
	}
	eventually(t, "the throw-away folder goes", 30*time.Second, func() bool { return missing(dir) })
}

// The next owner waits for the former's server to end, and takes over its data.
func TestStartRightAfterTheParentWasKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	parent, former := spawn(t, dir, false)
	parent.Process.Kill()
	parent.Wait()
	server := start(t, postgres.Config{Dir: dir})
	if runs(former) {
		t.Error("two servers on the same data")
	}
	query(t, server, `select 'yes'`)
}

// The shell beside a server goes with it, and leaves other processes alone.
func TestWatcherGoesWithTheServer(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs /proc")
	}
	server := start(t, postgres.Config{Dir: folder(t), Remove: true})
	session := server.PID()
	if got := inSession(t, session); got < 2 {
		t.Fatalf("%d processes: no watcher", got)
	}
	server.Crash()
	eventually(t, "the watcher ends", 30*time.Second, func() bool { return inSession(t, session) == 0 })
}

// inSession counts the processes of the postmaster's session that belong to the same user and are not its
// backends, which have sessions of their own.
func inSession(t *testing.T, session int) int {
	t.Helper()
	stats, err := fs.Glob(os.DirFS("/proc"), "[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, path := range stats {
		text, err := os.ReadFile(filepath.Join("/proc", path))
		if err != nil {
			continue
		}
		// Behind the name in brackets: state, parent, group, session.
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 3 && f[0] != "Z" && f[3] == strconv.Itoa(session) {
			count++
		}
	}
	return count
}
