package assign

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Holder is a user, or a program: an instance of a user.
type Holder struct {
	User     string
	Instance string // empty for people
}

// Compare orders holders by user, then by instance, byte by byte. Every node inserts requests in this order: in different orders,
// two batches would deadlock on each other's holders.
func (h Holder) Compare(o Holder) int {
	return cmp.Or(cmp.Compare(h.User, o.User), cmp.Compare(h.Instance, o.Instance))
}

// A Who identifies a caller: the holder, and the tasks that the holder may take.
type Who struct {
	Holder   Holder
	Groups   []string // the user's groups
	Anything bool     // needs no group: the user is a manager or an observer
	Program  bool     // a program (role agent): a limit of its own name alone binds it
	Picks    bool     // may ask by name for what people get only as their next: not a person at a desk
	Counts   bool     // may read how much there is, and no queries: a screen on a wall
	Tasks    []string // the only tasks that the user's token is for; nil: all

	Credential string // what they came in with; empty under --auth dev
}

// May reports whether the caller may see and take a task of these groups: it has none, or the caller is in one of them.
// Everything that shows or hands out a task asks May; for other callers the task does not exist.
func (w Who) May(groups []string) bool {
	return w.Anything || len(groups) == 0 || slices.ContainsFunc(w.Groups, func(g string) bool { return slices.Contains(groups, g) })
}

// CheckUser returns a [Refusal] that is [Invalid] if the user's name is not 1-128 bytes of UTF-8 without control characters
// and invisible characters. With those, two names that look the same would be two users.
func CheckUser(name string) error {
	if name == "" || len(name) > 128 || !utf8.ValidString(name) {
		return RefuseField("user", "a user name has 1 to 128 bytes of UTF-8; this one has %d", len(name))
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return RefuseField("user", "a user name has no control characters")
		}
		if Invisible(r) {
			return RefuseField("user", "a user name has no invisible characters; this one has U+%04X: type it anew instead of pasting it", r)
		}
	}
	if strings.TrimSpace(name) != name {
		return RefuseField("user", "a user name has no blanks around it")
	}
	return nil
}

// Invisible reports whether a character shows nothing, or is a blank other than the space. U+115F, U+1160, U+3164 and U+FFA0
// are Hangul fillers, U+2800 is the empty Braille pattern; the rest follows from Unicode's categories.
func Invisible(r rune) bool {
	switch r {
	case '\u034f', '\u115f', '\u1160', '\u17b4', '\u17b5', '\u2800', '\u3164', '\uffa0':
		return true
	}
	return r != ' ' && unicode.In(r, unicode.Cf, unicode.Z, unicode.Co, unicode.Variation_Selector)
}

// CheckInstance returns a [Refusal] that is [Invalid] if an instance's name is not 1-64 of [A-Za-z0-9._-], or empty for none.
func CheckInstance(name string) error {
	if len(name) > 64 {
		return RefuseField("instance", "an instance has at most 64 characters; this one has %d", len(name))
	}
	for _, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-' {
			return RefuseField("instance", "an instance is made of letters, digits, dots, underscores and hyphens")
		}
	}
	return nil
}

// CheckGroup returns a [Refusal] that is [Invalid] if a group's name is not 1-128 bytes of UTF-8 without commas and control
// characters.
func CheckGroup(name string) error {
	if err := CheckUser(name); err != nil || strings.Contains(name, ",") || strings.TrimSpace(name) != name {
		return RefuseField("groups", "a group has 1 to 128 bytes of UTF-8 without commas, control characters and blanks around it")
	}
	return nil
}

// MaxNeeds is how many groups and skills an item may need, and MaxSkills how many skills somebody may have.
const (
	MaxNeeds  = 20
	MaxSkills = 200
)

// CheckSkills returns the names of groups or skills in order, each once, or a [Refusal] that is [Invalid] and names the field.
func CheckSkills(field string, names []string, most int) ([]string, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > most {
		return nil, RefuseField(field, "at most %d names; there are %d", most, len(names))
	}
	for _, name := range names {
		if CheckGroup(name) != nil {
			return nil, RefuseField(field, "%.40q is no group and no skill: such a name has 1 to 128 bytes of UTF-8 without commas, control characters and blanks around it", name)
		}
	}
	return names, nil
}

// User is somebody who has come in, or a service, as administrators see them.
type User struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind"` // person or service
	Issuer    string     `json:"iss"`
	Subject   string     `json:"sub"`
	Role      Role       `json:"role,omitempty"`
	Admin     bool       `json:"admin"`
	Groups    []string   `json:"groups"`
	Blocked   bool       `json:"blocked"`
	BlockedAt *time.Time `json:"blocked_at"`
	SeenAt    *time.Time `json:"seen_at"`
	CreatedAt time.Time  `json:"created_at"`
	Sessions  int        `json:"sessions"` // that live now
	Tokens    int        `json:"tokens"`
	Holds     int        `json:"holds"` // items that they hold
}

// UserChange is what an administrator changes of a user.
type UserChange struct {
	Blocked      bool `json:"blocked"`
	WithServices bool `json:"with_services,omitempty"` // if blocked: the tokens that they made for services end, too
}

// ChangedUser is a user whom an administrator has blocked or let in again.
type ChangedUser struct {
	User
	Services []string `json:"services"` // those with tokens that they made: these live, or have just ended with their maker's block
}

// Token is a token as lists show it: without what opens anything.
type Token struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"` // personal, service or cli
	User      string     `json:"user"`
	Label     string     `json:"label"`
	Role      Role       `json:"role"`
	Admin     bool       `json:"admin"`
	Scopes    []string   `json:"scopes"`
	Tasks     []string   `json:"tasks"` // null: all
	MadeBy    string     `json:"made_by"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	UsedAt    *time.Time `json:"used_at"`
	UsedFrom  *string    `json:"used_from"`
	EndedAt   *time.Time `json:"ended_at"`
	EndedBy   *string    `json:"ended_by"`
}

// Session is a browser's log-in.
type Session struct {
	ID        string     `json:"id"` // its public one, which opens nothing
	User      string     `json:"user"`
	Role      Role       `json:"role,omitempty"`
	Admin     bool       `json:"admin"`
	CreatedAt time.Time  `json:"created_at"`
	ActiveAt  time.Time  `json:"active_at"`
	IdleAt    *time.Time `json:"idle_at"` // when it ends unless its user does something; null: it has no such end
	EndsAt    time.Time  `json:"ends_at"`
	Address   *string    `json:"address"`
	Agent     *string    `json:"agent"` // the browser

	Wall       bool       `json:"wall"`        // of a screen on a wall
	OpensUntil *time.Time `json:"opens_until"` // its link was not opened yet
}

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
