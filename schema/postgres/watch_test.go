//go:build unix

package postgres_test

import (
	"bufio"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/postgres"
)

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

// After kill -9 of its owner no server is left, even with a busy client.
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

// The shell beside a server ends with it, and leaves other processes alone.
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
