package agent

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"getwork/assign"
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
	body := map[string]any{"count": count, "lease": assign.Duration(s.Lease)}
	if !s.Once {
		body["linger"] = assign.Duration(s.linger())
	}
	// The key makes it the same request however often it is sent: of one whose answer was lost, the work would be held
	// by nobody's knowledge.
	c := call{method: "POST", path: "/tasks/" + url.PathEscape(s.Task) + "/requests", body: body, key: rand.Text()}
	var r assign.Request
	after, err := s.node.insist(ctx, c, &r)
	if err == nil {
		err = s.await(ctx, &r, after)
	}
	if ctx.Err() != nil {
		s.abandon(ctx, c, &r)
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
	var now assign.Request
	after, err = s.node.insist(ctx, call{method: "GET", path: "/requests/" + strconv.FormatInt(r.ID, 10)}, &now)
	switch {
	case refusedWith(err, http.StatusNotFound):
		r.State = assign.Cancelled
		return 0, nil
	case err == nil:
		*r = now
	}
	return after, err
}

// cancel ends a request that waits; if it was answered meanwhile, r has what it got.
func (s *session) cancel(ctx context.Context, r *assign.Request) error {
	_, err := s.node.insist(ctx, call{method: "DELETE", path: "/requests/" + strconv.FormatInt(r.ID, 10)}, r)
	if refusedWith(err, http.StatusConflict, http.StatusNotFound) {
		_, err = s.look(ctx, r)
	}
	return err
}

// abandon cancels a request of an agent that ends. If its answer is not known, the same call tells which it is.
func (s *session) abandon(ctx context.Context, c call, r *assign.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWithin)
	defer cancel()
	var err error
	if r.ID == 0 {
		brief, done := context.WithTimeout(ctx, abandonWithin/2)
		_, err = s.node.insist(brief, c, r)
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
