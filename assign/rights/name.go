package rights

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"getwork/assign"
)

// CheckName returns a [assign.Refusal] if a principal can't have that name. It asks more than [assign.CheckUser]: a name is
// normalised, has no two spaces in a row, and its letters are of one of Latin, Greek and Cyrillic, because an "а" of Cyrillic
// in a Latin name would make a second person who looks like the first.
func CheckName(name string) error {
	if err := assign.CheckUser(name); err != nil {
		return err
	}
	switch {
	case !norm.NFC.IsNormalString(name):
		return assign.RefuseField("user", "a user name is in Unicode's normal form C; this one has marks apart from their letters")
	case strings.Contains(name, "  "):
		return assign.RefuseField("user", "a user name has no two spaces in a row")
	}
	scripts := map[string]bool{}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return assign.RefuseField("user", "a user name has no unassigned characters; this one has U+%04X", r)
		}
		for script, table := range map[string]*unicode.RangeTable{"Latin": unicode.Latin, "Greek": unicode.Greek, "Cyrillic": unicode.Cyrillic} {
			if unicode.Is(table, r) {
				scripts[script] = true
			}
		}
	}
	if len(scripts) > 1 {
		return assign.RefuseField("user", "a user name has letters of one of the Latin, Greek and Cyrillic alphabets, not of several")
	}
	return nil
}

// nameKey returns what two names that would be mistaken for each other have in common.
func nameKey(name string) string { return strings.ToLower(norm.NFKC.String(name)) }
