package agent

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

const (
	// pollLive is how often a waiting request is read at least although the live channel is open: the channel's other end may
	// have vanished silently.
	pollLive = time.Minute

	// abandonWithin bounds the last calls of an agent that ends.
	abandonWithin = 5 * time.Second
)

// getWork asks for work and waits for the answer. The work was given at since or later: the request waited until then, or was not made.
// If ctx ends meanwhile, it cancels the request and returns any work that the request got.
func (s *session) getWork(ctx context.Context, count int) (r assign.Request, since time.Time, err error) {
	click := client.Click{Count: count, Lease: assign.Duration(s.Lease)}
	if !s.Once {
		click.Linger = assign.Duration(s.linger())
	}
	// The key makes repeated calls the same request. Without it, if an answer were lost, its work would be held and
	// nobody would know.
	key := client.Key(rand.Text())
	var a client.Answer
	s.channel.asking()
	since = time.Now()
	r, err = s.ask(ctx, click, key, client.Into(&a))
	if err == nil {
		since, err = s.await(ctx, &r, a.RetryAfter(), since)
	}
	if ctx.Err() != nil {
		s.abandon(ctx, click, key, &r)
		return assign.Request{}, since, ctx.Err()
	}
	return r, since, err
}

// ask asks for work of the task, or of any of several.
func (s *session) ask(ctx context.Context, click client.Click, options ...client.Option) (assign.Request, error) {
	if len(s.Any) > 0 {
		return s.server.GetNext(ctx, client.Next{Tasks: s.Any, Click: click}, options...)
	}
	return s.server.GetWork(ctx, s.Task, click, options...)
}

// asked reports whether a request of its instance is one that the agent makes.
func (s *session) asked(r *assign.Request) bool {
	if len(s.Any) > 0 {
		return r.Tasks != nil
	}
	return r.Tasks == nil && r.Task == s.Task
}

// takes reports whether the agent takes work of that task.
func (s *session) takes(task string) bool { return task == s.Task || slices.Contains(s.Any, task) }

// await waits until a request has ended. It learns that from the live channel, or asks when the node said, or sooner if a
// lease could end unnoticed until then. It returns when the request was last sure to wait: at first, that it was not made before since.
func (s *session) await(ctx context.Context, r *assign.Request, after time.Duration, since time.Time) (time.Time, error) {
	answered := time.Now()
	if r.State == assign.Pending {
		s.needsChannel()
	}
	for r.State == assign.Pending {
		told, ended, look, live := s.channel.about(r.ID)
		if ended {
			*r = told
			return since, nil
		}
		due := answered.Add(max(min(after, s.usualLease()/2), time.Second)) // a lease runs from when work is handed out
		switch {
		case look:
			due = time.Time{}
		case live:
			due = answered.Add(max(min(pollLive, s.usualLease()/2), time.Second))
		}
		t := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
		case <-s.channel.wake:
			t.Stop()
			if !look {
				continue
			}
		case <-t.C:
		}
		t.Stop()
		var err error
		looked := time.Now()
		if after, err = s.look(ctx, r); err != nil {
			return since, err
		}
		if answered = time.Now(); r.State == assign.Pending {
			since = looked
		}
		if live && !look && r.State != assign.Pending {
			s.channel.deaf()
		}
	}
	return since, nil
}

// look reads a request. If it no longer exists, it has ended.
func (s *session) look(ctx context.Context, r *assign.Request) (after time.Duration, err error) {
	var a client.Answer
	now, err := s.server.ShowRequest(ctx, r.ID, client.Into(&a))
	switch {
	case refusedWith(err, http.StatusNotFound):
		r.State = assign.Cancelled
		return 0, nil
	case err == nil:
		*r = now
	}
	return a.RetryAfter(), err
}

// cancel ends a waiting request; if it was answered meanwhile, r has its work.
func (s *session) cancel(ctx context.Context, r *assign.Request) error {
	cancelled, err := s.server.CancelRequest(ctx, r.ID)
	switch {
	case refusedWith(err, http.StatusConflict, http.StatusNotFound):
		_, err = s.look(ctx, r)
	case err == nil:
		*r = cancelled
	}
	return err
}

// abandon cancels a request of an agent that ends. If the request's id is unknown because its answer was lost, the same
// call again returns it.
func (s *session) abandon(ctx context.Context, click client.Click, key client.Option, r *assign.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWithin)
	defer cancel()
	var err error
	if r.ID == 0 {
		brief, done := context.WithTimeout(ctx, abandonWithin/2)
		*r, err = s.ask(brief, click, key)
		done()
	}
	if err == nil && r.State == assign.Pending {
		err = s.cancel(ctx, r)
	}
	if err != nil {
		s.Log.Warn("could not cancel the request; it may still wait", "task", s.Task, "error", err)
	}
	for _, w := range r.Work {
		s.refuse(w)
	}
}
