package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"getwork/assign"
)

// session is one Run.
type session struct {
	Agent
	server  *server
	channel *channel

	cut    context.Context // the parent of all handlers' contexts; cancelled when their time is over
	cutNow context.CancelCauseFunc

	mu       sync.Mutex
	task     assign.Task            // as it was last read; of several, what concerns all of them
	tasks    map[string]assign.Task // the same, each by its name
	readTask time.Time
	jobs     map[int64]*job // all that is in hand, by the work's id: in progress, to be reported, or waiting for a place
	active   int            // places that are taken; never more than Concurrency
	stock    []*job         // those that wait for a place; never more than Concurrency
	quick    int            // how many items in a row took less than quickWithin
	atLimit  bool           // an early request was refused by the user's limit: ask for what there is room for alone
	draining bool           // no more work is begun
	ended    chan struct{}  // holds one value when a job has ended
	running  sync.WaitGroup

	inRow int // how many requests in a row were answered at once, with all that they asked for; of the goroutine of take

	renewals *together[struct{}]
	results  *together[assign.Disposition]
}

// Run takes work until ctx ends, and then drains: it cancels the waiting request, gives handlers Drain to finish, and returns
// unfinished work at once. It then returns nil, as it does when nothing is left (Once). While the server is away it goes on
// trying, also if a proxy answers in its place. It returns a [getwork/ws/client.Problem] if the node refuses it work: there is no
// such task, or the agent may not take it; and an error if something other than getwork answers its first call, or if no call can
// be made with its URL or identity: a token that was read from a file may end with a line break.
func (a *Agent) Run(ctx context.Context) error {
	full, err := a.withDefaults()
	if err != nil {
		return err
	}
	s := &session{Agent: full, server: newServer(&full), channel: newChannel(), jobs: map[int64]*job{}, ended: make(chan struct{}, 1)}
	s.newTogether()
	s.cut, s.cutNow = context.WithCancelCause(context.WithoutCancel(ctx))
	defer s.cutNow(nil)
	defer s.server.transport.CloseIdleConnections()

	listening, hush := context.WithCancel(s.cut)
	var channel sync.WaitGroup
	channel.Go(func() { s.listen(listening) })
	err = s.take(ctx)
	s.drain()
	hush()
	channel.Wait()
	return err
}

// take is the agent's loop: wait for a free place, ask, wait for the answer, begin.
func (s *session) take(ctx context.Context) error {
	err := s.resume(ctx)
	if err == nil {
		s.Log.Info("waiting for work", "task", s.Task, "instance", s.Instance, "concurrency", s.Concurrency)
	}
	pause := time.Duration(0)
	for err == nil && ctx.Err() == nil {
		count, early := s.awaitPlace(ctx)
		if ctx.Err() != nil {
			break
		}
		began := time.Now()
		var r assign.Request
		var since time.Time
		r, since, err = s.getWork(ctx, count)
		switch {
		case err != nil:
			err = s.reconsider(ctx, err, count)
		case len(r.Work) > 0:
			pause = 0
			s.answered(len(r.Work) == count)
			s.begin(r.Work, since, early)
		case early && r.Reason != nil && *r.Reason == assign.AtLimit:
			s.mu.Lock()
			s.atLimit = true
			s.mu.Unlock()
		case s.Once && !s.busy():
			return nothingLeft(&r)
		case s.Once: // jobs in progress may still push more
			s.awaitIdle(ctx)
		case !s.Once && time.Since(began) > s.linger()/2:
			pause = 0 // it lingered for as long as requested
		default: // it ended with nothing at once in spite of lingering, for example at max_open
			s.explain(&r)
			pause = min(max(2*pause, time.Second), 20*time.Second)
			s.rest(ctx, pause)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// reconsider is called when a request for work was refused. If the task was changed meanwhile, that may be the reason, and
// nothing is wrong.
func (s *session) reconsider(ctx context.Context, err error, count int) error {
	if !refusedWith(err, http.StatusBadRequest) {
		return err
	}
	if failed := s.readSettings(ctx, 0); failed != nil {
		return failed
	}
	if count > s.settings().MaxRequest {
		return nil
	}
	return err
}

// nothingLeft returns the result of an agent that does not wait for more work.
func nothingLeft(r *assign.Request) error {
	switch {
	case r.State == assign.Failed:
		return fmt.Errorf("the query of task %s failed: %s", r.Task, r.WhyFailed())
	case r.State == assign.None && r.Reason != nil && *r.Reason == assign.Paused:
		return fmt.Errorf("task %s is paused; a manager resumes it", r.Task)
	}
	return nil
}

// explain logs why a request that should linger has ended with nothing.
func (s *session) explain(r *assign.Request) {
	switch {
	case r.Error != nil:
		s.Log.Warn("no work: the task's query failed", "task", s.Task, "request", r.ID, "error", r.WhyFailed())
	case r.Reason != nil:
		s.Log.Debug("no work", "task", s.Task, "request", r.ID, "reason", *r.Reason)
	}
}

// rest waits for about pause, or until a job ends, which may have been the obstacle.
func (s *session) rest(ctx context.Context, pause time.Duration) {
	t := time.NewTimer(pause/2 + rand.N(pause+1)) // so that agents do not ask at the same time
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ended:
	case <-ctx.Done():
	}
}

// awaitPlace waits until a place is free, and returns how many items to ask for. While work is quick, it asks for the next items early,
// for as many as there are places: one batch is handed out while the results of the one before are sent.
func (s *session) awaitPlace(ctx context.Context) (count int, early bool) {
	slow := time.NewTimer(quickWithin)
	defer slow.Stop()
	for {
		s.mu.Lock()
		most := max(s.task.MaxRequest, 1)
		count, early = min(s.Concurrency-len(s.jobs), most), false
		quick := true
		if ahead := min(2*s.Concurrency-len(s.jobs), s.Concurrency, most); len(s.jobs) > 0 && ahead >= min(s.Concurrency, most) {
			quick = s.isQuick()
			if early = quick && !s.atLimit; early {
				count = ahead
			}
		}
		s.mu.Unlock()
		if !quick {
			s.needsChannel()
		}
		if count >= 1 || ctx.Err() != nil {
			return count, early
		}
		select {
		case <-s.ended:
		case <-slow.C: // no place became free
			s.needsChannel()
		case <-ctx.Done():
		}
	}
}

// awaitIdle waits until no job is in progress.
func (s *session) awaitIdle(ctx context.Context) {
	for s.busy() && ctx.Err() == nil {
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
	}
}

func (s *session) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs) > 0
}

// resume reads the task, and takes over the work and the waiting request of a former process of this instance. It returns work
// that it has no place for, and cancels the request, which may ask for more than there is room for.
func (s *session) resume(ctx context.Context) error {
	if err := s.readSettingsBy(ctx, s.server.atTheStart()); err != nil {
		return err
	}
	p, err := s.server.Pipeline(ctx)
	if err != nil {
		return err
	}
	s.warnOfCodes()
	var mine []assign.Work
	for _, w := range p.Work {
		if s.takes(w.Task) {
			mine = append(mine, w)
		}
	}
	s.begin(mine, time.Time{}, false)
	for _, r := range p.Requests {
		if !s.asked(&r) {
			continue
		}
		if err := s.cancel(ctx, &r); err != nil {
			return err
		}
		s.begin(r.Work, time.Time{}, false)
	}
	return nil
}

// drain begins no more work, and returns when no job is in progress.
func (s *session) drain() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.putBack(nil)
	s.mu.Lock()
	left := len(s.jobs)
	s.mu.Unlock()
	if left > 0 {
		s.needsChannel()
		s.Log.Info("draining", "in_hand", left, "at_most", s.Drain)
	}
	late := time.AfterFunc(s.Drain, func() {
		s.Log.Info("the time to drain is over; cancelling the remaining work")
		s.cutNow(ErrDraining)
	})
	defer late.Stop()
	s.running.Wait()
}
