package pg

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A text that is cut stays valid UTF-8: PostgreSQL stores nothing else.
func TestBrief(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", briefly)
	if got := Brief(whole); got != whole {
		t.Errorf("a text of %d bytes was cut to %d", len(whole), len(got))
	}
	for _, long := range []string{whole + "y", whole[1:] + "é", strings.Repeat("€", briefly)} {
		got := Brief(long)
		kept, cut := strings.CutSuffix(got, "…")
		if !cut || !utf8.ValidString(got) || !strings.HasPrefix(long, kept) || len(kept) < briefly-3 || len(kept) > briefly {
			t.Errorf("%d bytes became %d: …%q", len(long), len(got), got[max(0, len(got)-10):])
		}
	}
}
