package sheet

import "testing"

func TestText(t *testing.T) {
	t.Parallel()
	for _, formula := range []string{"=1+1", "+1", "-2 days", "@x", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠x"} {
		if got := Text(formula); got != "'"+formula {
			t.Errorf("%q becomes %q", formula, got)
		}
	}
	for _, plain := range []string{"", "a=1", "1", "'=1", "ä", " =1", "\xff"} {
		if got := Text(plain); got != plain {
			t.Errorf("%q becomes %q", plain, got)
		}
	}
}
