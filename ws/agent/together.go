package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

// together makes one call for what many goroutines have to say. All that came while the last call was under way goes into the next, so
// an idle agent calls at once, and a busy one makes few calls. No timer collects anything.
type together[T any] struct {
	call  func(ctx context.Context, all []*saying[T])
	spawn func(func()) // runs a function that the agent waits for at its end; a caller of say is one already

	mu      sync.Mutex
	waiting []*saying[T]
	calling bool
}

// saying is what one goroutine has to say about work, and the answer.
type saying[T any] struct {
	ctx   context.Context
	lease *lease
	id    int64
	what  T
	size  int // of its part of the call's body, in bytes

	work assign.Work
	sent time.Time
	err  error
	done chan struct{} // closed when these three are set
}

// maxTogether is the most bytes of a call's body: a node takes 1 MiB.
const maxTogether = 1<<20 - 1<<10

// say returns when the node has answered, or ctx ends.
func (t *together[T]) say(ctx context.Context, one *saying[T]) error {
	one.ctx, one.done = ctx, make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, one)
	if !t.calling {
		t.calling = true
		t.spawn(t.run)
	}
	t.mu.Unlock()
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run makes calls until nobody waits.
func (t *together[T]) run() {
	for {
		t.yield()
		all := t.next()
		if all == nil {
			return
		}
		// The call goes on while anybody waits for it.
		ctx, cancel := context.WithCancel(context.Background())
		var left atomic.Int64
		left.Store(int64(len(all)))
		for _, one := range all {
			context.AfterFunc(one.ctx, func() {
				if left.Add(-1) == 0 {
					cancel()
				}
			})
		}
		t.call(ctx, all)
		cancel()
		for _, one := range all {
			close(one.done)
		}
	}
}

// yield lets those come first who are about to say something, such as all whose handlers were called together.
func (t *together[T]) yield() {
	for before, now := -1, 0; before < now && now < assign.MaxMany; {
		runtime.Gosched()
		t.mu.Lock()
		before, now = now, len(t.waiting)
		t.mu.Unlock()
	}
}

// next returns what the next call is about; nil if nobody waits.
func (t *together[T]) next() (all []*saying[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size, n := 0, 0
	for _, one := range t.waiting {
		if size += one.size; len(all) == assign.MaxMany || size > maxTogether && len(all) > 0 {
			break
		}
		n++
		if one.ctx.Err() == nil {
			all = append(all, one)
		}
	}
	t.waiting = append([]*saying[T](nil), t.waiting[n:]...)
	t.calling = len(all) > 0
	return all
}

// callOptions bound a call so that it can be repeated in time for all that it is about, each of whose contexts ends with its lease: also
// if a node that is busy for a moment asks for a longer pause than is left.
func callOptions[T any](all []*saying[T]) []client.Option {
	within, pause, heed := answerWithin, longestPause, answerWithin
	for _, one := range all {
		within, pause = min(within, one.lease.within()), min(pause, one.lease.pause())
		heed = min(heed, one.lease.within())
		if end, ok := one.ctx.Deadline(); ok {
			heed = min(heed, max(time.Until(end)/2, time.Second/20))
		}
	}
	return []client.Option{client.Within(within), client.MaxPause(pause), client.MaxRetryAfter(heed)}
}

// settle sets each one's answer.
func settle[T any](all []*saying[T], results []assign.Result, sent time.Time, err error) {
	if err != nil {
		err = ofCall(err)
	}
	for i, one := range all {
		one.sent = sent
		switch {
		case err != nil:
			one.err = err
		case results[i].Problem != nil:
			one.err = client.RefusalOf(results[i])
		case results[i].Work != nil:
			one.work = *results[i].Work
		}
	}
}

// ofCall returns the error of a whole call. A node that does not have the call, being older, says nothing about the work with that.
func ofCall(err error) error {
	if refusedWith(err, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusConflict) {
		return fmt.Errorf("the node takes no calls about much work; upgrade the nodes before the agents (%s)", err.Error()) //nolint:errorlint // must not pass for a refusal of the work
	}
	return err
}

// newTogether makes the session's two callers.
func (s *session) newTogether() {
	s.renewals = &together[struct{}]{spawn: s.running.Go, call: func(ctx context.Context, all []*saying[struct{}]) {
		ids := make([]int64, len(all))
		for i, one := range all {
			ids[i] = one.id
		}
		var a client.Answer
		results, err := s.server.ExtendMany(ctx, ids, append(callOptions(all), client.Into(&a))...)
		settle(all, results, a.Sent, err)
	}}
	s.results = &together[assign.Disposition]{spawn: s.running.Go, call: func(ctx context.Context, all []*saying[assign.Disposition]) {
		disposals := make([]assign.Disposal, len(all))
		for i, one := range all {
			disposals[i] = assign.Disposal{ID: one.id, Disposition: one.what}
		}
		results, err := s.server.DisposeMany(ctx, disposals, append(callOptions(all), client.Brief())...)
		settle(all, results, time.Time{}, err)
	}}
}

// sizeOf returns how many bytes a disposition takes in a call's body.
func sizeOf(d assign.Disposition) int {
	const plain = 128 // the id, the outcome, after and to
	if d.Note == nil && d.Error == nil && d.Code == nil && d.Result == nil {
		return plain
	}
	texts, _ := json.Marshal([]any{d.Note, d.Error, d.Code, d.Result})
	return plain + len(texts)
}
