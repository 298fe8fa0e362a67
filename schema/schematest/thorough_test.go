package schematest

import "testing"

func TestParsePart(t *testing.T) {
	for text, want := range map[string][2]int{"": {0, 0}, "1": {1, 1}, "1/1": {1, 1}, "1/3": {1, 3}, "3/3": {3, 3}} {
		if part, parts, err := parsePart(text); err != nil || part != want[0] || parts != want[1] {
			t.Errorf("%q: %d of %d, %v; want %v", text, part, parts, err, want)
		}
	}
	for _, text := range []string{"0", "2", "yes", "0/3", "4/3", "1/0", "-1/3", "1/3x", "1/ 3", "01/3", "1/3/3"} {
		if part, parts, err := parsePart(text); err == nil {
			t.Errorf("%q: %d of %d, want an error", text, part, parts)
		}
	}
}

// Each test is in one part, and the parts are about as large.
func TestParts(t *testing.T) {
	var count [4]int
	for a := range 26 {
		for b := range 26 {
			count[partOf("TestPage"+string(rune('A'+a))+string(rune('a'+b)), 3)]++
		}
	}
	for part, n := range count {
		if part == 0 && n != 0 || part > 0 && (n < 150 || n > 300) {
			t.Errorf("%d of 676 tests are in part %d of 3", n, part)
		}
	}
}
