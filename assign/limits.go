package assign

import "errors"

// Limits is how much one user may hold at a time over all tasks. A limit of their own name comes first, then the greatest of their
// groups, then everybody's; null is no limit. Only a limit of its own name binds a program (role agent), all its instances together.
type Limits struct {
	Everybody *int            `json:"everybody,omitempty"`
	Groups    map[string]*int `json:"groups,omitempty"`
	People    map[string]*int `json:"people,omitempty"`
}

// The greatest limit, and the most names that limits have. Each round reads those of the users who wait.
const (
	maxLimit  = 1_000_000
	maxLimits = 10_000
)

// Check returns a [Refusal] that is [Invalid] if the limits can't be.
func (l Limits) Check() error {
	if n := len(l.Groups) + len(l.People); n > maxLimits {
		return RefuseField("people", "limits name at most %d groups and people; these name %d: give the people a group, and that a limit", maxLimits, n)
	}
	check := func(field string, n *int) error {
		if n != nil && (*n < 0 || *n > maxLimit) {
			return RefuseField(field, "%s is from 0 to %d, or null for no limit, not %d", field, maxLimit, *n)
		}
		return nil
	}
	if err := check("everybody", l.Everybody); err != nil {
		return err
	}
	for _, named := range []struct {
		field  string
		limits map[string]*int
		name   func(string) error
	}{{"groups", l.Groups, CheckGroup}, {"people", l.People, CheckUser}} {
		for name, n := range named.limits {
			var wrong *Refusal
			if errors.As(named.name(name), &wrong) {
				return RefuseField(named.field, "%.40q: %s", name, wrong.Detail)
			}
			if err := check(named.field+"."+name, n); err != nil {
				return err
			}
		}
	}
	return nil
}
