package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"getwork/assign"
)

// job is one item in hand.
type job struct {
	work   assign.Work
	lease  *lease
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
	began  time.Time // when the handler was called; zero if it was not, or has ended. Guarded by the session's mu
}

const (
	// quickWithin is how long the handler takes at most while work counts as quick. Then the agent takes the next items early.
	quickWithin = time.Second

	// stockFor is how long items that were taken early wait for a place at most, before they go back.
	stockFor = 2 * time.Second

	// earlierWithin is how long the agent waits for a node to say how an item was let go of before.
	earlierWithin = 2 * time.Second

	// leastForStock is the shortest lease with which items are taken early.
	leastForStock = 10 * time.Second
)

// begin starts work that was given at since or later. Work that there is no place for waits for one, if the agent has asked for it
// early, and else it is returned; so is all work while the agent drains.
func (s *session) begin(works []assign.Work, since time.Time, early bool) {
	var stocked []*job
	for _, w := range works {
		s.mu.Lock()
		if s.jobs[w.ID] != nil || w.State != "held" {
			s.mu.Unlock()
			continue
		}
		place := s.active < s.Concurrency
		if s.draining || !place && !early {
			s.mu.Unlock()
			s.refuse(w)
			continue
		}
		j := &job{work: w, lease: newLease(w, leaseOf(w), since)}
		j.ctx, j.cancel = context.WithCancelCause(s.cut)
		s.jobs[w.ID] = j
		if place {
			s.active++
		} else {
			s.stock = append(s.stock, j)
			stocked = append(stocked, j)
		}
		s.mu.Unlock()
		if place {
			s.running.Go(func() { s.carry(j) })
		}
	}
	if stocked != nil {
		time.AfterFunc(stockFor, func() { s.putBack(stocked) })
	}
}

// leavePlace passes the place of a job on to the item that waits for one. The job may go on to report its outcome.
func (s *session) leavePlace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stock) == 0 {
		s.active--
		return
	}
	j := s.stock[0]
	s.stock = s.stock[1:]
	s.running.Go(func() { s.carry(j) })
}

// putBack returns those of the jobs that still wait for a place; nil: all.
func (s *session) putBack(jobs []*job) {
	s.mu.Lock()
	var back []*job
	s.stock = slices.DeleteFunc(s.stock, func(j *job) bool {
		goes := jobs == nil || slices.Contains(jobs, j)
		if goes {
			back = append(back, j)
		}
		return goes
	})
	for _, j := range back { // under mu: drain takes it before it waits
		s.refuse(j.work)
	}
	s.mu.Unlock()
	for _, j := range back {
		s.end(j)
	}
}

// end forgets a job.
func (s *session) end(j *job) {
	j.cancel(nil)
	s.mu.Lock()
	delete(s.jobs, j.work.ID)
	s.mu.Unlock()
	select {
	case s.ended <- struct{}{}:
	default:
	}
}

// refuse returns work that was not begun.
func (s *session) refuse(w assign.Work) {
	if w.State != "held" {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.cut), abandonWithin)
		defer cancel()
		s.dispose(ctx, &job{work: w, lease: new(lease)}, giveBack())
	})
}

// carry works on an item, from the check that it is still ours to its disposition.
func (s *session) carry(j *job) {
	defer s.end(j)
	leave := sync.OnceFunc(s.leavePlace)
	defer leave()
	if j.lease.due() {
		if err := s.renew(s.cut, j); err != nil {
			if s.cut.Err() != nil && !gone(err) { // the agent must end before a node has answered, so the work may still be ours
				s.refuse(j.work)
				return
			}
			s.logOf(j).Log(s.cut, levelOf(err), "not begun: the work may no longer be ours", "error", err)
			return
		}
	}
	keeping, stop := context.WithCancel(context.Background())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		s.keep(keeping, j)
	}()
	began := time.Now()
	d := giveBack()
	var err error
	if !s.ending() && j.ctx.Err() == nil {
		if j.work.DetailsLeftOut || j.work.Again {
			s.fill(j)
		}
		err = s.handle(j)
		d = outcome(j.ctx, err)
	}
	defer func() { stop(); <-kept }() // the lease is kept until the node knows the outcome
	leave()
	if errors.Is(context.Cause(j.ctx), ErrLeaseLost) {
		s.logOf(j).Warn("the lease was lost during the work; another holder may have it now", "after", time.Since(began))
		return
	}
	ctx, cancel := s.patience(j)
	defer cancel()
	if d.After == nil && (d.Outcome == "return" || d.Code != nil) {
		brief, done := context.WithTimeout(ctx, j.lease.within()) // the rest is for the disposition
		_ = s.readSettings(brief, time.Minute)                    // if it fails, the former settings stay
		done()
	}
	if d.Outcome == "fail" {
		s.logOf(j).Warn("failed", "after", time.Since(began), "error", err)
	}
	s.dispose(ctx, j, d)
}

// fill reads what the answer that had the work left out: how the item was let go of before, without which the handler can do, and
// details, which it may need.
func (s *session) fill(j *job) {
	ctx := j.ctx
	if !j.work.DetailsLeftOut {
		brief, done := context.WithTimeout(ctx, earlierWithin)
		defer done()
		ctx = brief
	}
	if w, err := s.server.ShowWork(ctx, j.work.ID); err == nil {
		j.work.Details, j.work.DetailsLeftOut, j.work.Earlier = w.Details, w.DetailsLeftOut, w.Earlier
	}
}

func (s *session) logOf(j *job) *slog.Logger {
	return s.Log.With("task", s.Task, "item", j.work.Item, "work", j.work.ID, "attempt", j.work.Attempt)
}

func (s *session) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// levelOf returns the log level for work that was not begun: it is routine that another holder has it.
func levelOf(err error) slog.Level {
	if gone(err) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// handle calls the handler.
func (s *session) handle(j *job) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.Log.Error("the handler panicked", "work", j.work.ID, "cause", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	w := j.work
	w.LeaseExpiresAt = j.lease.expires()
	s.mu.Lock()
	j.began = time.Now()
	s.mu.Unlock()
	defer s.timed(j)
	return s.Handler.Work(j.ctx, w)
}

// timed notes how long the handler took.
func (s *session) timed(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(j.began) < quickWithin {
		s.quick++
	} else {
		s.quick = 0
	}
	j.began = time.Time{}
}

// isQuick reports whether the last items took under a second each, and those in progress do so far. s.mu must be held.
func (s *session) isQuick() bool {
	if s.quick < min(s.Concurrency, 8) || s.usualLeaseLocked() < leastForStock {
		return false
	}
	for _, j := range s.jobs {
		if !j.began.IsZero() && time.Since(j.began) >= quickWithin {
			return false
		}
	}
	return true
}

// tellFor is how long an agent tries to report the outcome of work that has no lease.
const tellFor = 10 * time.Minute

// patience returns how long to try to report an outcome while no node answers: until the lease is over, and not long when
// the agent must end.
func (s *session) patience(j *job) (context.Context, context.CancelFunc) {
	deadline := j.lease.deadline()
	if deadline.IsZero() {
		deadline = time.Now().Add(tellFor)
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	stop := context.AfterFunc(s.cut, func() {
		late := time.AfterFunc(abandonWithin, cancel)
		context.AfterFunc(ctx, func() { late.Stop() })
	})
	return ctx, func() { stop(); cancel() }
}

// complete adds what a disposition leaves to the agent: the code and the time of returns.
func (s *session) complete(d *assign.Disposition, task assign.Task) {
	does, code := returns(d, task.Outcomes)
	if does && code == nil && s.ReturnCode != "" {
		with := *d
		with.Code = &s.ReturnCode
		if ok, own := returns(&with, task.Outcomes); ok {
			*d, code = with, own
		}
	}
	if does && d.After == nil && (code == nil || code.After == nil) {
		d.After = &task.Backoff
	}
}

// dispose reports the work's outcome. It is idempotent, so it is repeated if no answer came.
func (s *session) dispose(ctx context.Context, j *job, d assign.Disposition) {
	s.complete(&d, s.settingsOf(j.work.Task))
	say := func() error {
		return s.results.say(ctx, &saying[assign.Disposition]{lease: j.lease, id: j.work.ID, what: d, size: sizeOf(d)})
	}
	err := say()
	if refusedWith(err, http.StatusUnprocessableEntity) && d.Outcome != "fail" {
		s.logOf(j).Warn("the result was refused; the work has failed", "error", err)
		// Without this the item would stay held until its lease ends, and nobody would see why.
		d = invalid(reasonOf(err))
		err = say()
	}
	if err == nil && !s.Log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	log := s.Log.With("task", s.Task, "item", j.work.Item, "work", j.work.ID, "outcome", d.Outcome)
	switch {
	case err == nil:
		log.Debug("disposed of")
	case refusedWith(err, http.StatusConflict, http.StatusNotFound):
		log.Warn("the work was done, but no longer ours", "error", err)
	default:
		log.Error("could not report the outcome; another holder gets the item when the lease is over", "error", err)
	}
}
