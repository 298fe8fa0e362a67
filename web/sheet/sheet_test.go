package sheet

import (
	"strings"
	"testing"
	"testing/quick"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, formula := range []string{"=1+1", "+1", "-2 days", "@x", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠x", "'=1", "''-1"} {
		if got := Text(formula); got != "'"+formula {
			t.Errorf("%q becomes %q", formula, got)
		}
	}
	for _, plain := range []string{"", "a=1", "1", "ä", " =1", "\xff", "'", "'s", "''", "'\xff"} {
		if got := Text(plain); got != plain {
			t.Errorf("%q becomes %q", plain, got)
		}
	}
}

// Whatever a cell is, it comes back, and no spreadsheet executes it.
func TestPlainUndoesText(t *testing.T) {
	t.Parallel()
	back := func(picks []uint8, rest string) bool {
		var cell strings.Builder
		for _, n := range picks {
			alphabet := []rune("''=+-@\t\r\n＝ a")
			cell.WriteRune(alphabet[int(n)%len(alphabet)])
		}
		cell.WriteString(rest)
		for _, text := range []string{cell.String(), strings.TrimLeft(cell.String(), "'"), "'" + cell.String()} {
			shown := Text(text)
			if Plain(shown) != text || shown != "" && strings.ContainsRune(formula, []rune(shown)[0]) {
				t.Errorf("%q becomes %q and then %q", text, shown, Plain(shown))
				return false
			}
		}
		return true
	}
	if err := quick.Check(back, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
	for _, typed := range []string{"=1", "a", "'", "'a", "-5"} { // no export has written these
		if got := Plain(typed); got != typed {
			t.Errorf("%q is read as %q", typed, got)
		}
	}
}
