package cluster

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"getwork/cmd/internal/node"
)

// built is the binary of this test process. It is a global variable because tests have no common caller.
var built struct {
	mu   sync.Mutex
	dir  string
	path string
	err  error
}

// Binary returns the path of the getwork binary. The first call builds it, with the race detector if the test has it;
// [Clean] removes it.
func Binary(t testing.TB) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.path == "" && built.err == nil {
		built.err = build()
	}
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func build() error {
	dir, err := os.MkdirTemp("", "getwork-binary-")
	if err != nil {
		return err
	}
	built.dir = dir
	path := filepath.Join(dir, "getwork")
	var flags []string
	if raceEnabled {
		flags = append(flags, "-race")
	}
	if err := node.Build(context.Background(), path, flags...); err != nil {
		return err
	}
	built.path = path
	return nil
}

// Clean removes the binary, if one was built. Call it in TestMain, after the tests.
func Clean() {
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
		built.dir, built.path = "", ""
	}
}
