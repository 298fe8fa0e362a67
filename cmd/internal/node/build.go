package node

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Source returns the folder of the module's source, from which this program was compiled. It returns an error if the
// build does not say.
func Source() (string, error) {
	_, here, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(here) {
		return "", fmt.Errorf("build getwork: its source folder is unknown; give the path of a binary")
	}
	return filepath.Join(filepath.Dir(here), "..", "..", ".."), nil
}

// Build compiles getwork into the file path, which must not exist or not run; flags are further flags that `go run` has in common
// with `go build`, such as -race. It needs the module's source. It has `go run` hand the program to cp, because `go run` keeps a
// program that it has linked, and `go build` doesn't: otherwise each of a dozen test binaries would link getwork for four seconds
// of CPU. Such a program lacks the revision and what debuggers need.
func Build(ctx context.Context, path string, flags ...string) error {
	source, err := Source()
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	args := append([]string{"run", "-exec", "cp"}, flags...)
	compile := exec.CommandContext(ctx, "go", append(args, "./cmd/getwork", path)...)
	compile.Dir = source
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build getwork: %w\n%s", err, out)
	}
	return nil
}
