package assign

import (
	"context"
	"time"
)

// AwaitRequest reads a request, and holds the answer until it is ready or ctx ends; then it answers with the
// request as it last was. The feed tells when it changed; without a listener, or while it is gone, the request is
// read every second.
func (e *Engine) AwaitRequest(ctx context.Context, id int64, by Holder, any bool, ready func(*Request) bool) (Request, error) {
	r, err := e.Request(ctx, id, by, any)
	if err != nil || ready(&r) {
		return r, err
	}
	changed := make(chan struct{}, 1)
	sub, cancel := e.Feed.Subscribe(r.Holder(), func(ev Event) {
		if ev.Request == nil || ev.Request.ID == id {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	defer cancel()
	sub.RequestsOnly()
	for {
		now, err := e.Request(ctx, id, by, any) // subscribed first, read then: nothing falls between
		if ctx.Err() != nil {
			return r, nil
		}
		if r = now; err != nil || ready(&r) {
			return r, err
		}
		every := 5 * time.Second
		if !e.Feed.Listening() {
			every = time.Second
		}
		again := time.NewTimer(every)
		select {
		case <-ctx.Done():
			again.Stop()
			return r, nil
		case <-changed:
		case <-again.C:
		}
		again.Stop()
	}
}
