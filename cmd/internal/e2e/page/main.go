package page

import (
	"errors"
	"flag"
	"fmt"
	"os"
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
	e2e.Main(withBrowsers{m})
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
