package serve

import (
	"errors"
	"strings"
	"testing"

	"getwork/cmd/internal/command"
)

// Where users log in, queries need a login of their own, or somebody who says that they need none. The group of those who
// write them is one that people can be in.
func TestQueryFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		auth  string
		flags Queries
		url   string
		says  string
	}{
		{"dev", Queries{}, "", ""},
		{"dev", Queries{QueryAuthors: "query writers"}, "", ""},
		{"token", Queries{}, "", "--query-database-url"},
		{"token", Queries{}, "", "--trust-query-writers"},
		{"oidc", Queries{QueryAuthors: "a"}, "", "--query-database-url"},
		{"token", Queries{}, "postgres://reader@bank/bank", ""},
		{"token", Queries{TrustQueryWriters: true}, "", ""},
		{"proxy", Queries{TrustQueryWriters: true}, "postgres://reader@bank/bank", ""},
		{"dev", Queries{QueryAuthors: "a,b"}, "", "--query-authors"},
		{"dev", Queries{QueryAuthors: " a"}, "", "--query-authors"},
		{"dev", Queries{QueryAuthors: strings.Repeat("a", 129)}, "", "--query-authors"},
	} {
		err := c.flags.checkQueries(c.auth, c.url)
		if c.says == "" && err == nil {
			continue
		}
		if err == nil || c.says == "" || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %+v: %v, want %q", c.auth, c.flags, err, c.says)
		}
		var usage command.UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%s %+v: no usage error", c.auth, c.flags)
		}
	}
}
