package page

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"getwork/cmd/internal/cluster"
	_ "getwork/cmd/internal/demo" // nodes are built from it, so the test cache notices changes
	"getwork/cmd/internal/e2e"
	_ "getwork/cmd/internal/serve"
)

// Main runs a package's tests, and then ends the browsers. Call it in TestMain.
func Main(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		return // browsers are slow
	}
	cluster.WithoutRace()
	if err := awaitTurn(".."); err != nil {
		fmt.Fprintln(os.Stderr, "wait for the other packages' browsers:", err)
		os.Exit(1)
	}
	e2e.Main(withBrowsers{m})
}

// turn is the folder that this process has locked. The lock ends with the process, and leaves no file.
var turn *os.File

// awaitTurn locks a folder that all packages of tests with browsers have in common. go test runs packages beside each other, but
// these are done sooner one after the other: a page costs CPU by the second, for its clocks and timers, so that tests that slow
// each other down cost more. go test ends a package that has waited too long, and then shows the line that says so.
func awaitTurn(folder string) (err error) {
	if turn, err = os.Open(folder); err != nil {
		return err
	}
	if err = syscall.Flock(int(turn.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		return err
	}
	if all, err := filepath.Abs(folder); err == nil {
		folder = all
	}
	fmt.Fprintf(os.Stderr, "waiting for another package's browsers, as long as a process has %s locked; this counts against -timeout\n", folder)
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(turn.Fd()), syscall.LOCK_EX)
	}
	return err
}

// withBrowsers ends the browsers after the tests.
type withBrowsers struct{ e2e.Runner }

func (w withBrowsers) Run() int {
	code := w.Runner.Run()
	foxes.stop()
	if err := errors.Join(shared.stop(), desktop.stop()); err != nil {
		fmt.Fprintln(os.Stderr, "end Chromium:", err)
		code = max(code, 1)
	}
	return code
}
