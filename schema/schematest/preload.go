package schematest

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed testdata/preload.c
var preloadSource []byte

// compileTimeout bounds what takes a tenth of a second.
const compileTimeout = time.Minute

// preload compiles a library that a server preloads to save CPU, most of it on a virtual machine, where a page fault costs tens of
// microseconds. Processes end without the destructors of their libraries, of which Debian's PostgreSQL has some forty: they are half
// the CPU of a connection. Shared memory has huge pages: a fifth of the CPU of the engine's tests. It returns the variables for the
// server's environment, none where that can't be done, and a function that deletes the library, which the server needs only to start.
func preload() (environment []string, remove func()) {
	none := func() {}
	compiler, err := exec.LookPath("gcc")
	if err != nil || runtime.GOOS != "linux" {
		return nil, none
	}
	dir, err := os.MkdirTemp("", "getwork-preload-")
	if err != nil {
		return nil, none
	}
	remove = func() { _ = os.RemoveAll(dir) }
	source, library := filepath.Join(dir, "preload.c"), filepath.Join(dir, "preload.so")
	ctx, cancel := context.WithTimeout(context.Background(), compileTimeout)
	defer cancel()
	ok := os.Chmod(dir, 0o755) == nil && // root's server runs as another user
		os.WriteFile(source, preloadSource, 0o644) == nil &&
		exec.CommandContext(ctx, compiler, "-O1", "-shared", "-fPIC", "-nostdlib", "-o", library, source).Run() == nil &&
		os.Chmod(library, 0o755) == nil
	if !ok {
		remove()
		return nil, none
	}
	return []string{"LD_PRELOAD=" + library}, remove
}
