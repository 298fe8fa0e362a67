package torture

import (
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/node"
)

// Log-ins that fail for a while, while things are broken, or beside others that don't, are no finding; others are.
func TestLockedOut(t *testing.T) {
	t.Parallel()
	again := func(n int) []bool { return slices.Repeat([]bool{true}, n) }
	for _, c := range []struct {
		name  string
		tries []bool // one each second; true: it fails
		heals int    // things are broken before that many seconds
		found bool
	}{
		{"for ever", again(30), 0, true},
		{"for a while", again(10), 0, false},
		{"one gets in", slices.Concat(again(12), []bool{false}, again(12)), 0, false},
		{"while things are broken", again(30), 30, false},
		{"until shortly after", again(30), 20, false},
		{"for ever after", again(60), 20, true},
		{"and nobody tries", again(1), 0, false},
	} {
		var of trouble
		found := false
		began := time.Now()
		of.during(c.heals > 0)
		for second, failed := range c.tries {
			if second == c.heals {
				of.during(false)
			}
			found = of.tried(failed, began.Add(time.Duration(second)*time.Second)) > 0 || found
		}
		if found != c.found {
			t.Errorf("%s: found: %t, want %t", c.name, found, c.found)
		}
	}
}

// What a log-in fails with is printed when nobody gets in for long.
func TestLogInsThatFailAreFound(t *testing.T) {
	t.Parallel()
	s := &stage{findings: &findings{}, logIns: &logIns{}}
	s.members = []*member{{stage: s, node: &node.Node{URL: "http://127.0.0.1:1"}}} // nothing listens there
	s.logIns.trouble.since, s.logIns.trouble.tries = time.Now().Add(-lockedOut), lockedOutTries
	p := &pass{stage: s, holder: "ann", kind: session, subs: []string{"ann"}}
	if got := p.show(t.Context()); got.name != "" {
		t.Fatal(got)
	}
	found, _ := s.findings.list()
	if len(found) != 1 || !strings.Contains(found[0].Text, "ann: ") || !strings.Contains(found[0].Text, "refused") {
		t.Errorf("found: %v", found)
	}
}
