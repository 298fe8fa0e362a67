package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"getwork/assign"
)

// job is one item in hand.
type job struct {
	work   assign.Work
	lease  *lease
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
}

// begin starts work. It returns work that it has no place for, and while the agent drains it returns all work.
func (s *session) begin(w assign.Work) {
	l := newLease(w, leaseOf(w))
	s.mu.Lock()
	_, known := s.jobs[w.ID]
	room := len(s.jobs) < s.Concurrency && !s.draining
	if known || w.State != "held" {
		s.mu.Unlock()
		return
	}
	if !room {
		s.mu.Unlock()
		s.refuse(w)
		return
	}
	j := &job{work: w, lease: l}
	j.ctx, j.cancel = context.WithCancelCause(s.cut)
	s.jobs[w.ID] = j
	s.mu.Unlock()
	s.running.Go(func() {
		defer s.end(j)
		s.carry(j)
	})
}

// end frees the job's place.
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
		j := &job{work: w, lease: new(lease)}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.cut), abandonWithin)
		defer cancel()
		s.dispose(ctx, j, giveBack())
	})
}

// carry works on an item, from the check that it is still ours to its disposition.
func (s *session) carry(j *job) {
	log := s.Log.With("task", s.Task, "item", j.work.Item, "work", j.work.ID, "attempt", j.work.Attempt)
	if err := s.renew(s.cut, j); err != nil {
		if s.cut.Err() != nil && !gone(err) { // the agent must end before a node has answered, so the work may still be ours
			s.refuse(j.work)
			return
		}
		log.Log(s.cut, levelOf(err), "not begun: the work may no longer be ours", "error", err)
		return
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
		err = s.handle(j)
		d = outcome(j.ctx, err)
	}
	defer func() { stop(); <-kept }() // the lease is kept until the node knows the outcome
	if errors.Is(context.Cause(j.ctx), ErrLeaseLost) {
		log.Warn("the lease was lost during the work; another holder may have it now", "after", time.Since(began))
		return
	}
	ctx, cancel := s.patience(j)
	defer cancel()
	if d.Outcome == "return" && d.After == nil {
		brief, done := context.WithTimeout(ctx, j.lease.within()) // the rest is for the disposition
		_ = s.readSettings(brief, time.Minute)                    // if it fails, the former settings stay
		done()
		backoff := s.settings().Backoff
		d.After = &backoff
	}
	if d.Outcome == "fail" {
		log.Warn("failed", "after", time.Since(began), "error", err)
	}
	s.dispose(ctx, j, d)
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
	return s.Handler.Work(j.ctx, w)
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

// dispose reports the work's outcome. It is idempotent, so it is repeated if no answer came.
func (s *session) dispose(ctx context.Context, j *job, d assign.Disposition) {
	_, err := s.server.Dispose(ctx, j.work.ID, d, j.lease.options(ctx)...)
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
