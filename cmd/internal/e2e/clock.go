package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Overslept is for how long this process was not let run, altogether, in ns; see watchClock.
var Overslept atomic.Int64

// watchClock keeps it, from the begin of all tests: whoever naps and wakes up late was not let run.
func watchClock() {
	const nap = 20 * time.Millisecond
	for began := time.Now(); ; began = time.Now() {
		<-time.After(nap)
		if late := time.Since(began) - nap; late > 4*nap {
			Overslept.Add(int64(late))
		}
	}
}

// Standstill begins to measure for how long the machine lets this process not run, or a node. The returned function tells
// how long until now: what a node promises to do in time it can't do meanwhile, and what the test sees it sees later.
func (s *Site) Standstill() (sofar func() time.Duration) {
	before, waited := Overslept.Load(), map[string]time.Duration{}
	s.queued(func(thread string, since time.Duration) { waited[thread] = since })
	return func() time.Duration {
		longest := time.Duration(Overslept.Load() - before)
		s.queued(func(thread string, since time.Duration) { longest = max(longest, since-waited[thread]) })
		return longest
	}
}

// queued tells for how long each thread of each node could have run and was not let, where the system says so: Linux does.
func (s *Site) queued(tell func(thread string, since time.Duration)) {
	for _, node := range s.Nodes {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", node.PID()))
		for _, thread := range threads {
			var ran, waited int64
			text, _ := os.ReadFile(thread) // or it has ended since
			if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
				tell(thread, time.Duration(waited))
			}
		}
	}
}
