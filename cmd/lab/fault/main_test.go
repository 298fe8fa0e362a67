// Package fault tests nodes while something breaks: nodes, connections, PostgreSQL, its primary, a disk; or under more
// load than they can serve.
package fault

import (
	"flag"
	"net/http"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	_ "getwork/cmd/internal/demo" // nodes are built from it, so the test cache notices changes
	"getwork/cmd/internal/e2e"
	_ "getwork/cmd/internal/serve"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		return // faults wait for time-outs
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

// said returns a node's answer to /readyz, as soon as there is one.
func (s *site) said(node *cluster.Node) (status int) {
	s.T.Helper()
	e2e.Await(s.T, "the node says whether it is ready", 30*time.Second, func() bool {
		status = node.Ready()
		return status != 0
	})
	return status
}

// ready returns the /readyz status of a node that has its database. It asks again if the machine stood still meanwhile,
// since then it is not the node's fault that the database did not answer in time.
func (s *site) ready(node int) (status int) {
	s.T.Helper()
	for {
		still := s.Standstill()
		if status = s.Nodes[node].Ready(); status == http.StatusOK || still() < 500*time.Millisecond || s.T.Context().Err() != nil {
			return status
		}
	}
}

// noDuplicates checks that no item was handed out twice.
func (s *site) noDuplicates() {
	s.T.Helper()
	if twice := column[string](s, `select item from getwork.work group by task_id, item having count(*) > 1`); len(twice) > 0 {
		s.T.Errorf("handed out more than once: %v", twice)
	}
}
