// Package story tests what people and programs do with getwork, on real nodes: whole stories, and single clicks.
package story

import (
	"flag"
	"testing"

	_ "getwork/cmd/internal/cli"
	_ "getwork/cmd/internal/demo" // nodes are built from it, so the test cache notices changes
	"getwork/cmd/internal/e2e"
	_ "getwork/cmd/internal/serve"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		return // stories start processes
	}
	e2e.Main(m)
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
