package torture

import (
	"sync"
	"time"
)

// trouble notices that nobody gets in any more. While things are broken, it waits.
type trouble struct {
	mu     sync.Mutex
	broken bool
	since  time.Time // of the first try that failed since somebody got in, or since nothing is broken
	tries  int       // that failed since then
}

// Nobody has got in for this long, in this many tries: that is no slow machine.
const (
	lockedOut      = 15 * time.Second
	lockedOutTries = 5
)

// during says whether things are broken from now on.
func (t *trouble) during(broken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken, t.since, t.tries = broken, time.Time{}, 0
}

// tried notes the end of a try. It returns for how long all have failed, if that is too long.
func (t *trouble) tried(failed bool, now time.Time) (out time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !failed || t.broken {
		t.since, t.tries = time.Time{}, 0
		return 0
	}
	if t.tries++; t.tries == 1 {
		t.since = now
	}
	if out = now.Sub(t.since); out < lockedOut || t.tries < lockedOutTries {
		return 0
	}
	return out
}
