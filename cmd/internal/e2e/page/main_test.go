// Package page tests the web page in real browsers.
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

func TestMain(m *testing.M) {
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

// site is a site of e2e, with the steps that tests of this package share.
type site struct{ *e2e.Site }

// newSite starts n nodes; see [e2e.NewSite].
func newSite(t *testing.T, n int, url string, args ...string) *site {
	t.Helper()
	return &site{e2e.NewSite(t, n, url, args...)}
}

// column reads one column of a result.
func column[T any](s *site, sql string, args ...any) []T {
	s.T.Helper()
	return e2e.Column[T](s.Site, sql, args...)
}
