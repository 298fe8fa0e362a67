package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

// lease is how long work is ours. Its end is kept by this machine's clock, from when a node was last asked to renew it:
// what the server's clock shows does not matter, only how much time it gives.
type lease struct {
	length time.Duration // 0: it does not run out
	check  chan struct{} // of one place: something may have happened to it

	mu      sync.Mutex
	renewed time.Time  // when the last renewal that succeeded was sent
	until   *time.Time // the same as the server shows it
	shown   *time.Time // what an event showed last
}

// newLease begins with what an answer told, at the moment that it came; the first renewal makes that exact.
func newLease(w assign.Work, length time.Duration) *lease {
	return &lease{length: length, check: make(chan struct{}, 1), renewed: time.Now(), until: w.LeaseExpiresAt}
}

// leaseOf is how much time the server gives for work. What was assigned a moment ago shows it; what was held before
// this process began has been renewed since, so it is at most the usual.
func (s *session) leaseOf(w assign.Work) time.Duration {
	if w.LeaseExpiresAt == nil {
		return 0
	}
	given := w.LeaseExpiresAt.Sub(w.AssignedAt)
	return max(min(given, s.usualLease()), time.Second/2)
}

// usualLease is how much time the server gives: what the task has, or what this agent asks for.
func (s *session) usualLease() time.Duration {
	if own := s.settings().Lease; own != nil {
		return time.Duration(*own)
	}
	return s.Lease
}

// deadline is when it is over unless it is renewed; zero: never.
func (l *lease) deadline() time.Time {
	if l.length == 0 {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed.Add(l.length)
}

func (l *lease) expires() *time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

func (l *lease) extended(at time.Time, until *time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed, l.until = at, until
}

// next is when to renew it: after a third, so that two more tries are left; zero: never.
func (l *lease) next() time.Time {
	if l.length == 0 {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed.Add(l.length / 3)
}

const (
	answerWithin = 30 * time.Second
	longestPause = 10 * time.Second
)

// within is how long a call about it may take, so that it can be repeated while there is time.
func (l *lease) within() time.Duration {
	if l.length == 0 {
		return answerWithin
	}
	return min(answerWithin, max(l.length/3, time.Second/4))
}

// pause is how long to wait at most before such a call is repeated.
func (l *lease) pause() time.Duration {
	if l.length == 0 {
		return longestPause
	}
	return min(longestPause, max(l.length/10, time.Second/20))
}

// doubt has it checked at once.
func (l *lease) doubt() {
	select {
	case l.check <- struct{}{}:
	default:
	}
}

// sees takes in when an event says that it is over. Said a second time, nothing has renewed it since: it is about to
// run out, sooner than this agent believes, since a manager has changed how long it is.
func (l *lease) sees(until *time.Time) (soon bool) {
	if l.length == 0 || until == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	soon = l.shown != nil && l.shown.Equal(*until) && time.Since(l.renewed) > time.Second/2
	l.shown = until
	return soon
}

// renew asks for the lease to be extended, until it would be over. It returns the refusal of work that is no longer ours.
func (s *session) renew(ctx context.Context, j *job) error {
	if over := j.lease.deadline(); !over.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, over, errOver)
		defer cancel()
	}
	var a client.Answer
	w, err := s.server.Extend(ctx, j.work.ID, client.Within(j.lease.within()), client.MaxPause(j.lease.pause()), client.Into(&a))
	if err == nil {
		j.lease.extended(a.Sent, w.LeaseExpiresAt)
	}
	return err
}

// errOver: no node answered until the end of the lease, so somebody else may have the work.
var errOver = errors.New("no node answered while the lease lasted")

// gone reports whether an error of renew says that the work is no longer ours.
func gone(err error) bool {
	return errors.Is(err, errOver) || refusedWith(err, http.StatusConflict, http.StatusNotFound)
}

// keep renews the lease until ctx ends, and cancels the handler when the work is no longer ours.
func (s *session) keep(ctx context.Context, j *job) {
	rest := time.Duration(0)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if next := j.lease.next(); !next.IsZero() {
			timer.Reset(max(time.Until(next), rest))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-j.lease.check:
		case <-due:
		}
		err := s.renew(ctx, j)
		switch {
		case ctx.Err() != nil:
			return
		case gone(err):
			j.cancel(fmt.Errorf("%w: %w", ErrLeaseLost, err))
			return
		case err != nil: // such as a token that was revoked
			s.Log.Warn("the lease can't be renewed", "work", j.work.ID, "error", err)
			rest = j.lease.pause()
		default:
			rest = 0
		}
	}
}

// workChanged takes in what an event says about work.
func (s *session) workChanged(w *assign.Work) {
	s.mu.Lock()
	j := s.jobs[w.ID]
	s.mu.Unlock()
	switch {
	case j == nil:
	case w.State != "held":
		j.cancel(fmt.Errorf("%w: it is %s", ErrLeaseLost, w.State))
	case j.lease.sees(w.LeaseExpiresAt):
		j.lease.doubt()
	}
}

// checkAllBut has the work checked that a snapshot did not show as held: what happened to it was not heard.
func (s *session) checkAllBut(held map[int64]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, j := range s.jobs {
		if !held[id] {
			j.lease.doubt()
		}
	}
}
