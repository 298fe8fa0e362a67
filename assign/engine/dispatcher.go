package engine

import (
	"context"
	"slices"
	"time"

	"getwork/assign"
	"getwork/notify"
)

// click is an assign.Click on its way through a dispatcher.
type click struct {
	assign.Click
	holder assign.Holder
	done   chan struct{}   // closed when there is an answer or an error
	gone   <-chan struct{} // closed when the caller no longer waits for the answer

	// Only the recorder writes what follows. The caller reads it when done is closed.
	recorded assign.Click // what is recorded for its holder, if that is this click's
	id       int64        // the id of the request that answers it
	lost     bool         // its key belongs to an earlier request
	inserted assign.State // the state of the request recorded for this click; empty: another request answers it
	answer   *assign.Request
	err      error
}

// dispatcher gathers the clicks on one task that come while this node's last transaction for it is in flight, and records
// them together. There is no timer: on an idle system a click is alone in its batch, and waits for nobody.
type dispatcher struct{ queue []*click }

// recordWithin is how long a batch may take.
const recordWithin = 15 * time.Second

// maxBatch bounds one transaction, and so the time for which it holds the assign lock. The feed expects no more answers of a round
// that the announcer announces.
const maxBatch = notify.MaxQuickRound

// maxQueued bounds a dispatcher's queue, and so the wait of the last click in it.
const maxQueued = 4000

// dispatch queues a click, and starts recording. [assign.Busy]: the queue is full. [assign.Unavailable]: the node drains. After an
// error the click's done is never closed.
func (e *Engine) dispatch(task string, k *click) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.dispatches[task]; d != nil {
		if len(d.queue) >= maxQueued {
			d.queue = slices.DeleteFunc(d.queue, func(k *click) bool { // clicks whose callers have gone take no room
				select {
				case <-k.gone:
					return true
				default:
					return false
				}
			})
		}
		if len(d.queue) >= maxQueued {
			return assign.Refuse(assign.Busy, "clicks on this task come faster than they can be recorded; ask again in a moment")
		}
		d.queue = append(d.queue, k)
		return nil
	}
	d := &dispatcher{queue: []*click{k}}
	if !e.spawn(func(context.Context) { recorder{e}.recordAll(task, d) }) {
		return errEnding
	}
	e.dispatches[task] = d
	return nil
}

// next takes a batch off the queue, without clicks whose callers no longer wait: they were told to ask again, or have gone.
// After a database has stood still for an hour there would be an hour's worth of them, and each would get work that its user
// does not know of.
func (d *dispatcher) next() (batch []*click) {
	for i, k := range d.queue {
		select {
		case <-k.gone:
			continue
		default:
		}
		if batch = append(batch, k); len(batch) == maxBatch {
			d.queue = d.queue[i+1:]
			return batch
		}
	}
	d.queue = nil
	return batch
}

// recordAll records until the queue is empty. It is not bound to the engine's context, because clicks in the queue are
// recorded even while the node drains. Each batch ends after recordWithin.
func (c recorder) recordAll(task string, d *dispatcher) {
	for {
		c.mu.Lock()
		batch := d.next()
		if len(batch) == 0 {
			delete(c.dispatches, task)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), recordWithin)
		c.recordBatch(ctx, task, batch)
		cancel()
		for _, k := range batch {
			close(k.done)
		}
	}
}
