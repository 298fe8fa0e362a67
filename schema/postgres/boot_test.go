//go:build unix

package postgres_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"getwork/schema/postgres"
)

// An interrupted initdb leaves data.init, never data.
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

// A machine that lost its power leaves a lock file, whose process id may belong to any process by now.
func TestStaleLockFile(t *testing.T) {
	t.Parallel()
	sleeper := exec.Command("sleep", "600")
	if os.Geteuid() == 0 {
		// The process has the same user as PostgreSQL, which otherwise ignores the lock file.
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
