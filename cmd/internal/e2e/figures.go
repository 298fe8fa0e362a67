package e2e

import (
	"strconv"
	"strings"
)

// Figure reads one figure from a node's /metrics; name includes its labels, as /metrics prints them.
func (s *Site) Figure(node int, name string) float64 {
	s.T.Helper()
	a, err := s.As("", node).Do(s.T.Context(), "GET", "/metrics", nil)
	if err != nil || a.Status != 200 {
		s.T.Fatalf("metrics of node %d: %d %s, %v", node, a.Status, a.Body, err)
	}
	for line := range strings.Lines(string(a.Body)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), name+" "); found {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.T.Fatalf("%s is %q", name, value)
			}
			return n
		}
	}
	s.T.Fatalf("node %d has no metric %s:\n%s", node, name, a.Body)
	return 0
}
