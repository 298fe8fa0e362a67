package agent

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

const (
	// pollLive is how often a request that waits is looked at although the live channel is open: its other end may
	// have vanished without a word.
	pollLive = time.Minute

	// abandonWithin bounds what is still tried for an agent that ends.
	abandonWithin = 5 * time.Second
)

// getWork asks for work and waits for the answer. If ctx ends meanwhile the request is cancelled, and what it got goes
// back.
func (s *session) getWork(ctx context.Context, count int) (assign.Request, error) {
	click := client.Click{Count: count, Lease: assign.Duration(s.Lease)}
	if !s.Once {
		click.Linger = assign.Duration(s.linger())
	}
	// The key makes it the same request however often it is sent: of one whose answer was lost, the work would be held
	// by nobody's knowledge.
	key := client.Key(rand.Text())
	var a client.Answer
	r, err := s.server.GetWork(ctx, s.Task, click, key, client.Into(&a))
	if err == nil {
		err = s.await(ctx, &r, a.RetryAfter())
	}
	if ctx.Err() != nil {
		s.abandon(ctx, click, key, &r)
		return assign.Request{}, ctx.Err()
	}
	return r, err
}

// await waits until a request has ended: it is told so by the live channel, or asks when the node said, or sooner where
// a lease could end unseen until then.
func (s *session) await(ctx context.Context, r *assign.Request, after time.Duration) error {
	answered := time.Now()
	for r.State == assign.Pending {
		told, ended, look, live := s.channel.about(r.ID)
		if ended {
			*r = told
			return nil
		}
		due := answered.Add(max(min(after, s.usualLease()/2), time.Second)) // a lease runs from when work is handed out
		switch {
		case look:
			due = time.Time{}
		case live:
			due = answered.Add(pollLive)
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
		if after, err = s.look(ctx, r); err != nil {
			return err
		}
		answered = time.Now()
		if live && !look && r.State != assign.Pending {
			s.channel.deaf()
		}
	}
	return nil
}

// look reads a request. One that is gone has ended.
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

// cancel ends a request that waits; if it was answered meanwhile, r has what it got.
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

// abandon cancels a request of an agent that ends. If its answer is not known, the same call tells which it is.
func (s *session) abandon(ctx context.Context, click client.Click, key client.Option, r *assign.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWithin)
	defer cancel()
	var err error
	if r.ID == 0 {
		brief, done := context.WithTimeout(ctx, abandonWithin/2)
		*r, err = s.server.GetWork(brief, s.Task, click, key)
		done()
	}
	if err == nil && r.State == assign.Pending {
		err = s.cancel(ctx, r)
	}
	if err != nil {
		s.Log.Warn("whether a request still waits is not known", "task", s.Task, "error", err)
	}
	for _, w := range r.Work {
		s.refuse(w)
	}
}
