package history

import (
	"slices"
	"sync"
	"time"
)

// History is a whole run: what its clients saw, in the order in which it was recorded, and what the database had in the end.
type History struct {
	Entries []Entry
	Tables  Tables
}

// Recorder gathers entries in memory. Its methods may be called by many goroutines; what one goroutine adds stays in its
// order.
type Recorder struct {
	start time.Time

	mu      sync.Mutex
	entries []Entry
}

// NewRecorder returns a recorder whose clock begins now.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Now is the time since the run's start.
func (r *Recorder) Now() Clock { return time.Since(r.start) }

// Add records one entry. What it points to belongs to the recorder from then on.
func (r *Recorder) Add(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
}

// Len is how many entries there are so far.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries)
}

// History is what was recorded until now, together with what the tables say in the end.
func (r *Recorder) History(t Tables) History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return History{Entries: slices.Clone(r.entries), Tables: t}
}
