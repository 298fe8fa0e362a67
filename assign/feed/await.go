package feed

import (
	"context"
	"time"

	"getwork/assign"
)

// Await reads a request, and holds the answer until the request is ready or ctx ends. Then it returns the request as it last
// was. The feed reports changes; without a listener, or while the listener is away, Await reads the request every second.
func (f *Feed) Await(ctx context.Context, id int64, by assign.Holder, asManager bool, ready func(*assign.Request) bool) (assign.Request, error) {
	r, err := f.config.Records.Request(ctx, id, by, asManager)
	if err != nil || ready(&r) {
		return r, err
	}
	changed := make(chan *assign.Request, 1) // the ended request; nil: read it
	sub, cancel := f.Subscribe(r.Holder(), func(events ...assign.Event) {
		for _, ev := range events {
			if ev.Request == nil || ev.Request.ID == id {
				select {
				case changed <- ev.Request:
				default:
				}
			}
		}
	})
	defer cancel()
	sub.RequestsOnly()
	for {
		now, err := f.config.Records.Request(ctx, id, by, asManager) // read after subscribing, so that no change is missed
		if ctx.Err() != nil {
			return r, nil
		}
		if r = now; err != nil || ready(&r) {
			return r, err
		}
		every := 5 * time.Second
		if !f.Listening() {
			every = time.Second
		}
		again := time.NewTimer(every)
		select {
		case <-ctx.Done():
			again.Stop()
			return r, nil
		case told := <-changed:
			again.Stop()
			// A request ends once, so an ended one is newer than r. Any other event may be older.
			if told != nil && told.State != assign.Pending && r.State == assign.Pending && ready(told) {
				return *told, nil
			}
		case <-again.C:
		}
	}
}
