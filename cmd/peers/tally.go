package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// tally counts how often each job was worked.
type tally struct {
	mu     sync.Mutex
	jobs   []tallied
	worked int // jobs that were worked at least once
	change chan struct{}
}

type tallied struct {
	times  int
	at     time.Time     // when it was worked first
	worked chan struct{} // closed at that time
}

func newTally() *tally { return &tally{change: make(chan struct{}, 1)} }

// insert returns the number of a job to insert, and a channel that is closed when it was worked.
func (t *tally) insert() (int, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	worked := make(chan struct{})
	t.jobs = append(t.jobs, tallied{worked: worked})
	return len(t.jobs) - 1, worked
}

// work counts a job as worked.
func (t *tally) work(n int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	job := &t.jobs[n]
	job.times++
	if job.times > 1 {
		return
	}
	job.at = now
	close(job.worked)
	t.worked++
	if t.worked == len(t.jobs) {
		select {
		case t.change <- struct{}{}:
		default:
		}
	}
}

func (t *tally) workedAt(n int) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.jobs[n].at
}

// wait returns when all inserted jobs have been worked.
func (t *tally) wait(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		t.mu.Lock()
		inserted, worked := len(t.jobs), t.worked
		t.mu.Unlock()
		if inserted == worked {
			return nil
		}
		select {
		case <-t.change:
		case <-patient.Done():
			return fmt.Errorf("%d of %d jobs were not worked within %s: %w", inserted-worked, inserted, patience, patient.Err())
		}
	}
}

// await waits for one job.
func await(ctx context.Context, worked <-chan struct{}) error {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-worked:
		return nil
	case <-patient.Done():
		return fmt.Errorf("a job was not worked within %s: %w", patience, patient.Err())
	}
}

// counts returns how many jobs there are, how many were worked once, and how many more often.
func (t *tally) counts() (inserted, once, twice int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, job := range t.jobs {
		switch {
		case job.times == 1:
			once++
		case job.times > 1:
			twice++
		}
	}
	return len(t.jobs), once, twice
}
