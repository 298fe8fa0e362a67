// Package grants says what the groups of a provider, a proxy or a JSON web token give here: a role, the admin bit, and groups
// for tasks.
package grants

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"getwork/assign"
)

// mostGroups is how many groups a person may have here.
const mostGroups = 200

// Grant gives the members of a group a role, or the admin bit.
type Grant struct{ Role, Group string }

// grantable are what --grant may give.
var grantable = []string{"worker", "agent", "observer", "manager", "admin"}

// Parse parses a value of --grant, such as worker=loan-desk.
func Parse(s string) (Grant, error) {
	role, group, found := strings.Cut(s, "=")
	if !found || group == "" || !slices.Contains(grantable, role) {
		return Grant{}, fmt.Errorf("--grant is ROLE=GROUP, where ROLE is one of %s", strings.Join(grantable, ", "))
	}
	return Grant{role, group}, nil
}

// Rules say what groups mean here.
type Rules struct {
	Grants     []Grant
	TaskGroups string // all, or the prefix of the groups that are kept, which is cut off
}

// Rights are what somebody's groups give them.
type Rights struct {
	Role   string   // worker, agent, observer or manager; empty: the admin bit alone
	Admin  bool     // may manage people
	Groups []string // for tasks; sorted, without repetitions, never nil
}

// The reasons why groups give no rights.
var (
	ErrNone    = errors.New("no grant")
	ErrTooMany = errors.New("too many groups")
	ErrName    = errors.New("a group's name can't be used")
)

// Of returns what groups give: the role of the first grant that matches, in the order of the flags, and the admin bit beside
// it. Groups match byte by byte.
func (r *Rules) Of(groups []string) (Rights, error) {
	rights := Rights{Groups: []string{}}
	for _, g := range r.Grants {
		switch {
		case !slices.Contains(groups, g.Group):
		case g.Role == "admin":
			rights.Admin = true
		case rights.Role == "":
			rights.Role = g.Role
		}
	}
	if rights.Role == "" && !rights.Admin {
		return Rights{}, ErrNone
	}
	for _, name := range groups {
		if r.TaskGroups != "all" {
			cut, has := strings.CutPrefix(name, r.TaskGroups)
			if !has || cut == "" {
				continue
			}
			name = cut
		}
		if assign.CheckGroup(name) != nil {
			return Rights{}, ErrName
		}
		rights.Groups = append(rights.Groups, name)
	}
	slices.Sort(rights.Groups)
	rights.Groups = slices.Compact(rights.Groups)
	if len(rights.Groups) > mostGroups {
		return Rights{}, ErrTooMany
	}
	return rights, nil
}
