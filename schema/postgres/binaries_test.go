//go:build unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"getwork/schema/schematest/timeout"
)

// fake makes a folder with programs that print a version.
func fake(t *testing.T, version string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		script := fmt.Sprintf("#!/bin/sh\necho '%s'\n", version)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestNewestFirst(t *testing.T) {
	old := fake(t, "postgres (PostgreSQL) 13.9", "initdb", "postgres")
	fifteen := fake(t, "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", "initdb", "postgres")
	again := fake(t, "postgres (PostgreSQL) 15.2", "initdb", "postgres")
	client := fake(t, "postgres (PostgreSQL) 18.0", "postgres")
	beta := fake(t, "postgres (PostgreSQL) 18beta1", "initdb", "postgres")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(fifteen, link); err != nil {
		t.Fatal(err)
	}
	found := inspect([]string{old, fifteen, again, client, beta, link, "/missing"})
	want := []Binaries{{beta, 18}, {fifteen, 15}, {again, 15}}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// Somebody who puts a version in PATH has chosen it.
func TestPathIsPreferred(t *testing.T) {
	newer := fake(t, "postgres (PostgreSQL) 18.1", "initdb", "postgres")
	older := fake(t, "postgres (PostgreSQL) 14.9", "initdb", "postgres")
	usual := folders
	folders = []string{newer}
	t.Cleanup(func() { folders = usual })
	t.Setenv("PATH", older+":"+os.Getenv("PATH"))
	if found, err := Find(); err != nil || found != (Binaries{older, 14}) {
		t.Errorf("found %v, %v", found, err)
	}
	if found, err := findMajor(18); err != nil || found != (Binaries{newer, 18}) {
		t.Errorf("for data of PostgreSQL 18: %v, %v", found, err)
	}
}

// Without an installed PostgreSQL, no folder for its data is left behind.
func TestNoPostgresNoFolder(t *testing.T) {
	usual := folders
	folders = nil
	t.Cleanup(func() { folders = usual })
	t.Setenv("PATH", t.TempDir())
	dir := filepath.Join(t.TempDir(), "getwork")
	s, err := Start(t.Context(), Config{Dir: filepath.Join(dir, "private")})
	if err == nil {
		_ = s.Stop(context.Background())
	}
	if !errors.Is(err, ErrNotInstalled) {
		t.Errorf("without PostgreSQL: %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s was left behind: %v", dir, err)
	}
}

// A server that is ready and lets nobody in is given up, with its reason. Not beside other tests, which would have less time.
func TestRefusalIsTold(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own: not with -short")
	}
	dir, err := os.MkdirTemp("", "getwork-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := Start(t.Context(), Config{Dir: dir, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(context.Background())
	if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte("local all all reject\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	usual := letInWithin
	letInWithin = 100 * time.Millisecond
	t.Cleanup(func() { letInWithin = usual })
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(20*time.Second))
	defer cancel()
	if err := s.Restart(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "pg_hba.conf rejects") {
		t.Errorf("a server that refuses us: %v", err)
	}
	if s.PID() != 0 {
		t.Error("it still runs")
	}
}

// Root's umask does not keep the server's user out. Not beside other tests: the process has one umask.
func TestParentsAreOpenToTheServersUser(t *testing.T) {
	parent := t.TempDir()
	usual := syscall.Umask(0o077)
	defer syscall.Umask(usual)
	lock, err := claimDir(filepath.Join(parent, "a", "b", "private"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	wanted := fs.FileMode(0o755)
	if os.Geteuid() != 0 {
		wanted = 0o700 // it runs as the same user, whose umask counts
	}
	for name, mode := range map[string]fs.FileMode{"a": wanted, "a/b": wanted, "a/b/private": 0o700} {
		info, err := os.Stat(filepath.Join(parent, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != mode {
			t.Errorf("%s: %v, want %v", name, got, mode)
		}
	}
}

// A process that is being started has a copy of the lock's file, which must not keep the next server out.
func TestUnlockedFolderIsFree(t *testing.T) {
	dir := t.TempDir()
	lock, err := claimDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	if err := (&Server{lock: lock}).discard(); err != nil {
		t.Fatal(err)
	}
	again, err := claimDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestReasonIsTheLineThatSaysWhy(t *testing.T) {
	var out tail
	fmt.Fprint(&out, "2026-01-01 UTC [1] LOG:  starting\n2026-01-01 UTC [1] FATAL:  no room\n2026-01-01 UTC [1] LOG:  shut down\n")
	if got := out.reason(); got != "no room" {
		t.Errorf("reason %q", got)
	}
}

// A server's output must not grow in our memory.
func TestTailForgets(t *testing.T) {
	var out tail
	for i := range 10_000 {
		fmt.Fprintf(&out, "line %d\n", i)
	}
	if len(out.buf) > tailSize || out.reason() != "line 9999" {
		t.Errorf("%d bytes, ending in %q", len(out.buf), out.reason())
	}
}
