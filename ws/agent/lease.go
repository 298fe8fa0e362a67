package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"getwork/assign"
)

// lease is how long work is ours. Its end is counted by this machine's clock, from the last call that renewed it: only the
// length that the server grants matters, not the server's clock.
type lease struct {
	length time.Duration // 0 if it does not run out
	check  chan struct{} // holds one value when something may have happened to it

	mu      sync.Mutex
	renewed time.Time  // it began then or later: when the last renewal that succeeded was sent, or the call that gave it
	unsure  bool       // it was not renewed yet, and may have begun longer ago
	until   *time.Time // its end as the server shows it
	shown   *time.Time // its end as the last event showed it
}

// newLease returns the lease of work that was given at since or later. If a third of it may be over, it counts from now, and is renewed
// before the work begins, which makes that exact.
func newLease(w assign.Work, length time.Duration, since time.Time) *lease {
	l := &lease{length: length, check: make(chan struct{}, 1), renewed: since, until: w.LeaseExpiresAt}
	if l.unsure = time.Since(since) > length/3; l.unsure {
		l.renewed = time.Now()
	}
	return l
}

// due reports whether it must be renewed before the work begins: it is not sure to be younger than a third, or something may have
// happened to it.
func (l *lease) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsure || len(l.check) > 0 || l.length > 0 && time.Since(l.renewed) > l.length/3
}

// leaseOf returns the length of the work's lease. Work that a former process held keeps the length that it got, whatever this
// process requests.
func leaseOf(w assign.Work) time.Duration {
	if w.Lease == nil {
		return 0
	}
	return max(time.Duration(*w.Lease), time.Second/2)
}

// usualLease returns the task's lease, or the one that this agent requests.
func (s *session) usualLease() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usualLeaseLocked()
}

// usualLeaseLocked is usualLease for callers that hold s.mu.
func (s *session) usualLeaseLocked() time.Duration {
	if own := s.task.Lease; own != nil {
		return time.Duration(*own)
	}
	return s.Lease
}

// deadline returns when the lease is over unless it is renewed; zero means never.
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
	l.renewed, l.until, l.unsure = at, until, false
}

// next returns when to renew it: after a third, so that two more tries are left; zero means never.
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

// within returns how long a call about it may take, so that it can be repeated in time.
func (l *lease) within() time.Duration {
	if l.length == 0 {
		return answerWithin
	}
	return min(answerWithin, max(l.length/3, time.Second/4))
}

// pause returns how long to wait at most before such a call is repeated.
func (l *lease) pause() time.Duration {
	if l.length == 0 {
		return longestPause
	}
	return min(longestPause, max(l.length/10, time.Second/20))
}

// doubt makes keep check the lease at once.
func (l *lease) doubt() {
	select {
	case l.check <- struct{}{}:
	default:
	}
}

// sees handles an event that shows the lease's end. If the same end comes a second time, the lease was not renewed since, and
// runs out sooner than this agent believes: a manager has changed its length.
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

// renew extends the lease, and tries until it would be over. It returns the refusal if the work is no longer ours.
func (s *session) renew(ctx context.Context, j *job) error {
	if over := j.lease.deadline(); !over.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, over, errOver)
		defer cancel()
	}
	one := &saying[struct{}]{lease: j.lease, id: j.work.ID, size: 32}
	err := s.renewals.say(ctx, one)
	if err == nil {
		j.lease.extended(one.sent, one.work.LeaseExpiresAt)
	}
	return err
}

// errOver means that no node answered until the end of the lease, so another holder may have the work.
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
			timer.Reset(min(max(time.Until(next), rest), time.Until(j.lease.deadline())))
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

// workChanged handles an event about work.
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

// checkAllBut makes the agent check all work that a snapshot does not show as held: its events were missed.
func (s *session) checkAllBut(held map[int64]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, j := range s.jobs {
		if !held[id] {
			j.lease.doubt()
		}
	}
}
