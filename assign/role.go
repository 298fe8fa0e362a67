package assign

import "slices"

// Role says what a caller may do; /openapi.json says for each operation which roles may call it.
type Role string

// The roles. A manager may do everything that the others may.
const (
	RoleWorker   Role = "worker"
	RoleAgent    Role = "agent"    // a worker that may also push items
	RoleObserver Role = "observer" // reads what all do, but not other people's notes, and takes no work
	RoleManager  Role = "manager"
)

// Roles are all roles.
var Roles = []Role{RoleWorker, RoleAgent, RoleObserver, RoleManager}

// CheckRole returns a [Refusal] that is [Invalid] if there is no such role.
func CheckRole(r Role) error {
	if !slices.Contains(Roles, r) {
		return RefuseField("role", "a role is worker, agent, observer or manager, not %q", r)
	}
	return nil
}

// Both returns the role that may do what both roles may, or "" if they have nothing in common.
func (r Role) Both(other Role) Role {
	switch {
	case r == other || other == RoleManager:
		return r
	case r == RoleManager:
		return other
	case r == RoleWorker && other == RoleAgent || r == RoleAgent && other == RoleWorker:
		return RoleWorker
	}
	return ""
}
