package checker

import (
	"testing"

	"getwork/assign"
)

// The checker must not depend on what it judges, so it has the text itself.
func TestWithheldText(t *testing.T) {
	if withheld != assign.QueryFailed {
		t.Errorf("workers are told %q", assign.QueryFailed)
	}
	said, other := "division by zero", "out of range"
	text := withheld
	for _, c := range []struct {
		told, failure *string
		right         bool
	}{{nil, nil, true}, {&said, &said, true}, {&text, &said, true}, {&other, &said, false}, {&text, nil, false}, {nil, &said, false}} {
		if toldOf(c.told, c.failure) != c.right {
			t.Errorf("%v", c)
		}
	}
}
