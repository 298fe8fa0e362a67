package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Overslept is the total time for which the machine has not let this process run, in ns; see watchClock.
var Overslept atomic.Int64

// watchClock updates Overslept from the start of all tests: a nap that ends late means that the process could not run.
func watchClock() {
	const nap = 20 * time.Millisecond
	for began := time.Now(); ; began = time.Now() {
		<-time.After(nap)
		if late := time.Since(began) - nap; late > 4*nap {
			Overslept.Add(int64(late))
		}
	}
}

// Standstill starts to measure for how long the machine does not let this process, or a node, run. The returned
// function returns the time so far. In that time a node can't do what it promises, and the test sees things late.
func (s *Site) Standstill() (sofar func() time.Duration) {
	before, waited := Overslept.Load(), map[string]time.Duration{}
	s.queued(func(thread string, since time.Duration) { waited[thread] = since })
	return func() time.Duration {
		longest := time.Duration(Overslept.Load() - before)
		s.queued(func(thread string, since time.Duration) { longest = max(longest, since-waited[thread]) })
		return longest
	}
}

// queued returns how long each thread of each node could have run but was not scheduled, on systems that report it,
// such as Linux.
func (s *Site) queued(tell func(thread string, since time.Duration)) {
	for _, node := range s.Nodes {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", node.PID()))
		for _, thread := range threads {
			var ran, waited int64
			text, _ := os.ReadFile(thread) // or the thread has ended since
			if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
				tell(thread, time.Duration(waited))
			}
		}
	}
}
