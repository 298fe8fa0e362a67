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

// A Who identifies a caller: the holder, and the tasks that the holder may take.
type Who struct {
	Holder   Holder
	Groups   []string // the user's groups
	Anything bool     // needs no group: the user is a manager or an observer
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
		if invisible(r) {
			return RefuseField("user", "a user name has no invisible characters; this one has U+%04X: type it anew instead of pasting it", r)
		}
	}
	if strings.TrimSpace(name) != name {
		return RefuseField("user", "a user name has no blanks around it")
	}
	return nil
}

// invisible reports whether a character shows nothing, or is a blank other than the space. U+115F, U+1160, U+3164 and U+FFA0
// are Hangul fillers, U+2800 is the empty Braille pattern; the rest follows from Unicode's categories.
func invisible(r rune) bool {
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

// TimeText formats a time for refusals and explanations.
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// UTC returns the time in UTC, as the API shows times; nil for nil.
func UTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// Compare orders holders by user, then by instance, byte by byte. Every node inserts requests in this order: in different orders,
// two batches would deadlock on each other's holders.
func (h Holder) Compare(o Holder) int {
	return cmp.Or(cmp.Compare(h.User, o.User), cmp.Compare(h.Instance, o.Instance))
}
