package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// built is the binary of this test process. It can't be handed through: tests have no common caller.
var built struct {
	mu   sync.Mutex
	dir  string
	path string
	err  error
}

// Binary returns the path of the getwork binary. The first caller builds it, with the race detector if the test
// has it; [Clean] removes it.
func Binary(t testing.TB) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.path == "" && built.err == nil {
		built.err = build()
	}
	if built.err != nil {
		t.Fatal("build getwork: ", built.err)
	}
	return built.path
}

func build() error {
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		return errors.New("the module's folder is not known")
	}
	dir, err := os.MkdirTemp("", "getwork-binary-")
	if err != nil {
		return err
	}
	built.dir = dir
	path := filepath.Join(dir, "getwork")
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	compile := exec.Command("go", append(args, "./cmd/getwork")...)
	compile.Dir = filepath.Join(filepath.Dir(here), "..", "..", "..")
	if out, err := compile.CombinedOutput(); err != nil {
		return errors.New(err.Error() + "\n" + string(out))
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
