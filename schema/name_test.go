package schema_test

import (
	"strings"
	"testing"

	"getwork/schema"
)

func TestParseName(t *testing.T) {
	for _, good := range []string{"getwork", "_", "a1_b", "user", strings.Repeat("x", 40)} {
		if n, err := schema.ParseName(good); err != nil || string(n) != good {
			t.Errorf("ParseName(%q) = %q, %v", good, n, err)
		}
	}
	for _, bad := range []string{"", "1a", "Getwork", "a-b", "a b", "a.b", `a"b`, "ä", "pg_x", "a\n", strings.Repeat("x", 41)} {
		if n, err := schema.ParseName(bad); err == nil {
			t.Errorf("ParseName(%q) = %q, want an error", bad, n)
		}
	}
}

func TestNameSQL(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{"select 1", "select 1"},
		{"select * from getwork.task", `select * from "user".task`},
		{"getwork.a,getwork.b", `"user".a,"user".b`},
		{"(getwork.f('getwork.task'::regclass))", `("user".f('"user".task'::regclass))`},
		{"forgetwork.a, x.getwork.a, _getwork.a", "forgetwork.a, x.getwork.a, _getwork.a"},
		{`"getwork.a"`, `"getwork.a"`},
		{"getwork", "getwork"},
	} {
		if got := schema.Name("user").SQL(c.query); got != c.want {
			t.Errorf("SQL(%s) = %s, want %s", c.query, got, c.want)
		}
		if got := schema.Default.SQL(c.query); got != c.query {
			t.Errorf("the default changed %s to %s", c.query, got)
		}
	}
	query := "select * from getwork.task"
	if n := testing.AllocsPerRun(100, func() { query = schema.Default.SQL(query) }); n != 0 {
		t.Errorf("the default allocates %v times", n)
	}
}
