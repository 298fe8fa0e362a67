package serve

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign/rights"
	"getwork/web/identity"
)

// Every address of the log-in is described in openapi.json, and no other is.
func TestLogInRoutesAreDescribed(t *testing.T) {
	t.Parallel()
	n := &node{log: slog.New(slog.DiscardHandler), rights: &rights.Watch{}, logIns: &identity.LogIns{}}
	var routes, described []string
	for _, r := range n.logInRoutes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	file, err := os.ReadFile("../../../web/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var description struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(file, &description); err != nil {
		t.Fatal(err)
	}
	for path, methods := range description.Paths {
		for method := range methods {
			if strings.HasPrefix(path, "/auth/") {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(routes)
	slices.Sort(described)
	if diff := cmp.Diff(routes, described); diff != "" || len(routes) < 5 {
		t.Errorf("routes (-) and what is described (+):\n%s", diff)
	}
}
