package grants

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	t.Parallel()
	grants := []Grant{{"worker", "all"}, {"manager", "chiefs"}, {"admin", "it"}, {"worker", "desk"}}
	for _, tt := range []struct {
		groups []string
		prefix string
		role   string
		admin  bool
		kept   string
		err    error
	}{
		{[]string{"chiefs", "desk"}, "all", "manager", false, "chiefs,desk", nil},
		{[]string{"chiefs", "all"}, "all", "worker", false, "all,chiefs", nil}, // the order of the flags
		{[]string{"it"}, "all", "", true, "it", nil},
		{[]string{"it", "desk"}, "all", "worker", true, "desk,it", nil},
		{[]string{"Desk"}, "all", "", false, "", ErrNone},
		{[]string{"desk "}, "all", "", false, "", ErrNone},
		{nil, "all", "", false, "", ErrNone},
		{[]string{"desk", "gw-a", "CN=x,OU=y"}, "gw-", "worker", false, "a", nil},
		{[]string{"desk", "gw- a"}, "gw-", "", false, "", ErrName},
		{[]string{"desk", "a\x00"}, "all", "", false, "", ErrName},
		{[]string{"desk", strings.Repeat("g", 129)}, "all", "", false, "", ErrName},
	} {
		r := Rules{Grants: grants, TaskGroups: tt.prefix}
		got, err := r.Of(tt.groups)
		if !errors.Is(err, tt.err) || got.Role != tt.role || got.Admin != tt.admin || strings.Join(got.Groups, ",") != tt.kept {
			t.Errorf("%q: %+v, %v", tt.groups, got, err)
		}
		if err == nil && got.Groups == nil {
			t.Errorf("%q: the groups are nil", tt.groups)
		}
	}
	for _, n := range []int{200, 201} {
		groups := []string{"desk", "desk"}
		for i := range n - 1 {
			groups = append(groups, fmt.Sprint("g", i))
		}
		if _, err := (&Rules{Grants: grants, TaskGroups: "all"}).Of(groups); (err == nil) != (n == 200) {
			t.Errorf("%d groups: %v", n, err)
		}
	}
	for s, want := range map[string]Grant{"worker=desk": {"worker", "desk"}, "admin=CN=it,DC=bank": {"admin", "CN=it,DC=bank"}} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "worker", "worker=", "king=desk", "Worker=desk", "=desk", "worker =desk"} {
		if _, err := Parse(s); err == nil {
			t.Errorf("--grant %q is accepted", s)
		}
	}
}
