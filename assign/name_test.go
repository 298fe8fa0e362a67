package assign

import "testing"

// Two names that look the same can't be two users.
func TestNamesThatLookTheSame(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"oliver\u200b", "oli\u00adver", "\u202eoliver", "oliver\u2800", "oliver ", " oliver", "oli\u00a0ver", "oli\u2028ver", "oliver\ufe0f", "\u3164"} {
		if err := CheckUser(name); !IsRefusal(err, Invalid) {
			t.Errorf("%q is taken: %v", name, err)
		}
	}
	for _, name := range []string{"Oliver Smith", "o'brien", "Zoë", "李小龍", "محمد", "a@b.example", "CORP\\tracy"} {
		if err := CheckUser(name); err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
}
