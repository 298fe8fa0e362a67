package assign

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Holder is who can hold work: a user; for programs a user and an instance of his.
type Holder struct {
	User     string
	Instance string // empty for people
}

// Who is somebody who asks: who he is, and what he may take.
type Who struct {
	Holder   Holder
	Groups   []string // that he is in
	Anything bool     // he needs no group: a manager
}

// May reports whether somebody may see and take a task of these groups: it has none, or they are in one of them. Whatever
// shows or hands out a task asks it; to those who may not, the task is as if it were not there.
func (w Who) May(groups []string) bool {
	return w.Anything || len(groups) == 0 || slices.ContainsFunc(w.Groups, func(g string) bool { return slices.Contains(groups, g) })
}

// CheckUser says what is wrong with a user's name: 1-128 bytes UTF-8 without control characters, and without characters
// that nobody sees. Two names that look the same would be two people.
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

// invisible reports whether a character shows nothing, or a blank that is not the space bar's. U+115F to U+3164 are
// Hangul fillers, U+2800 is the empty Braille pattern; the rest follows from Unicode's categories.
func invisible(r rune) bool {
	switch r {
	case '\u034f', '\u115f', '\u1160', '\u17b4', '\u17b5', '\u2800', '\u3164', '\uffa0':
		return true
	}
	return r != ' ' && unicode.In(r, unicode.Cf, unicode.Z, unicode.Co, unicode.Variation_Selector)
}

// CheckInstance says what is wrong with an instance's name: 1-64 of [A-Za-z0-9._-], or empty for none.
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

// CheckGroup says what is wrong with a group's name: 1-128 bytes UTF-8 without commas and control characters.
func CheckGroup(name string) error {
	if err := CheckUser(name); err != nil || strings.Contains(name, ",") || strings.TrimSpace(name) != name {
		return RefuseField("groups", "a group has 1 to 128 bytes of UTF-8 without commas, control characters and blanks around it")
	}
	return nil
}

// TimeText is a time as refusals and explanations tell it.
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// UTC is a time that may be missing in UTC, as the contract shows times.
func UTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// Compare orders holders by user, then by instance, byte by byte.
func (h Holder) Compare(o Holder) int {
	return cmp.Or(cmp.Compare(h.User, o.User), cmp.Compare(h.Instance, o.Instance))
}
