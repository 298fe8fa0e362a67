//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"getwork/schema/postgres"
)

// ownerOfServers returns the user that root's servers run as.
func ownerOfServers(t *testing.T) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	t.Skip("no user postgres or nobody")
	return nil
}

// give makes the server's user the owner of a file.
func give(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	owner := ownerOfServers(t)
	if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
}

func TestRootDropsItsRights(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	server := start(t, postgres.Config{Dir: folder(t), Remove: true})
	want := ownerOfServers(t)
	info, err := os.Stat(fmt.Sprintf("/proc/%d", server.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t); got.Uid != want.Uid || got.Gid != want.Gid {
		t.Errorf("it runs as %d:%d, want %d:%d", got.Uid, got.Gid, want.Uid, want.Gid)
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		if g, ok := strings.CutPrefix(line, "Groups:"); ok && strings.Contains(" "+strings.TrimSpace(g)+" ", " 0 ") {
			t.Errorf("it kept the group root: %s", g)
		}
	}
}

// Root's own folders are closed to the server's user: the error names the closed one.
func TestUnreachableFolderIsNamed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	closed := folder(t)
	_, err := postgres.Start(context.Background(), postgres.Config{Dir: filepath.Join(closed, "a", "b"), Fast: true})
	if err == nil || !strings.Contains(err.Error(), "may not enter "+closed) {
		t.Errorf("error %v", err)
	}
}
