package history

import (
	"slices"
	"sync"
	"time"
)

// History is a whole run: what its clients saw, in the order of recording, and the final tables.
type History struct {
	Entries []Entry
	Tables  Tables
}

// Recorder gathers entries in memory. Its methods may be called by many goroutines; entries of one goroutine stay in
// order.
type Recorder struct {
	start time.Time

	mu      sync.Mutex
	entries []Entry
}

// NewRecorder returns a recorder whose clock begins now.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Now returns the time since the run's start.
func (r *Recorder) Now() Clock { return time.Since(r.start) }

// Add records one entry, and takes ownership of what it points to.
func (r *Recorder) Add(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
}

// Len returns the number of entries so far.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries)
}

// History returns the entries so far, together with the final tables.
func (r *Recorder) History(t Tables) History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return History{Entries: slices.Clone(r.entries), Tables: t}
}
