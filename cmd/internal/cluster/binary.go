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
	race bool
	dir  string
	path string
	err  error
}

func init() { built.race = raceEnabled }

// WithoutRace makes the package's nodes run without the race detector even if the tests have it. Call it in TestMain. It
// is for tests of something else, such as the page: with the detector a node takes several times as long, and other
// packages look for races in nodes.
func WithoutRace() {
	built.mu.Lock()
	defer built.mu.Unlock()
	built.race = false
}

// Race reports whether nodes run with the race detector. It keeps several bytes beside each byte of a node's heap.
func Race() bool {
	built.mu.Lock()
	defer built.mu.Unlock()
	return built.race
}

// Binary returns the path of the getwork binary. The first call builds it, with the race detector if the test has it,
// unless [WithoutRace] was called; [Clean] removes it. With -short the test is skipped: `go test -short` runs what one process can show.
func Binary(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes of getwork: not with -short")
	}
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
	if built.race {
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
