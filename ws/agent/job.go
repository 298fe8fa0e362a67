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
	"getwork/ws/client"
)

// job is one item in hand.
type job struct {
	work   assign.Work
	lease  *lease
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
}

// begin takes work in hand. What there is no place for goes back, and so does all of it while the agent drains.
func (s *session) begin(w assign.Work) {
	l := newLease(w, s.leaseOf(w))
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

// end makes the place free.
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

// refuse gives work back that was not begun.
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
		log.Log(s.cut, levelOf(err), "not begun: it may be no longer ours", "error", err)
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
	defer func() { stop(); <-kept }() // the lease is kept until the node knows how it went
	if errors.Is(context.Cause(j.ctx), ErrLeaseLost) {
		log.Warn("the lease was lost while it was worked on; somebody else may have it now", "after", time.Since(began))
		return
	}
	ctx, cancel := s.patience(j)
	defer cancel()
	if d.Outcome == "return" && d.After == nil {
		_ = s.readSettings(ctx, time.Minute) // else as it was
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

// levelOf is how loud to be about work that was not begun: that somebody else has it is nothing special.
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

// tellFor is how long a node is told about work that has no lease.
const tellFor = 10 * time.Minute

// patience is for how long a node that is away is told how work ended: until its lease is over, and not long when the
// agent must end.
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

// dispose tells how work ended. Said twice it changes nothing, so it is repeated when no answer came.
func (s *session) dispose(ctx context.Context, j *job, d assign.Disposition) {
	_, err := s.server.Dispose(ctx, j.work.ID, d, client.Within(j.lease.within()), client.MaxPause(j.lease.pause()))
	log := s.Log.With("task", s.Task, "item", j.work.Item, "work", j.work.ID, "outcome", d.Outcome)
	switch {
	case err == nil:
		log.Debug("let go of")
	case refusedWith(err, http.StatusConflict, http.StatusNotFound):
		log.Warn("it was no longer ours when it was done", "error", err)
	default:
		log.Error("the server could not be told; somebody else gets it when the lease is over", "error", err)
	}
}
