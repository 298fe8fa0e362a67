package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"getwork/assign/pg"
)

// serveLoop is this node's work on one task. A task has one loop at a time, which goes round once more if it was woken
// meanwhile. Engine.mu guards its fields.
type serveLoop struct {
	again      bool          // it was woken meanwhile
	slotHanded bool          // a run slot was handed to it, and it has not used it yet
	hasSlot    bool          // it has taken a run slot
	lingering  bool          // something can be handed out again: serve lingering requests, too
	pokes      chan struct{} // tells the run under way to check whether it is still wanted
}

// Wake makes this node serve the task's requests if it has any. It does not block. It is called after everything that may
// have made a request servable. A needless call costs one indexed query.
func (e *Engine) Wake(task int64) { e.wake(task, false) }

// WakeLingering is Wake after something has become free: work was closed or its lease ran out, or an item was pushed or
// redriven. Lingering requests get it at once if an inbox or a fresh shelf can hand it out. Otherwise the next run finds it.
func (e *Engine) WakeLingering(task int64) { e.wake(task, true) }

// wakeFreed wakes the tasks whose work was closed, and those that they conflict with: the former holder may now have the item
// there.
func (e *Engine) wakeFreed(ctx context.Context, tasks ...int64) {
	ctx, cancel := pg.Detached(ctx) // the change is committed, whether or not the caller still waits
	defer cancel()
	partners, _ := e.partners(ctx, e.api, tasks...) // without them, requests that linger there wait for their look_after
	for _, task := range append(partners, tasks...) {
		e.WakeLingering(task)
	}
}

func (e *Engine) wake(task int64, lingering bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wakeLocked(task, lingering)
}

// wakeLocked is wake for callers that hold e.mu.
func (e *Engine) wakeLocked(task int64, lingering bool) {
	if l := e.loops[task]; l != nil {
		l.again = true
		l.lingering = l.lingering || lingering
		return
	}
	l := &serveLoop{pokes: make(chan struct{}, 1), lingering: lingering}
	if e.spawn(func(ctx context.Context) { e.runServeLoop(ctx, task, l) }) {
		e.loops[task] = l
	}
}

// runServeLoop serves the task until nothing is left that this node can do for it. It reads l.again and removes the loop from e.loops
// in one critical section: a Wake between the two would reach a loop that ends, and be lost.
func (e *Engine) runServeLoop(ctx context.Context, task int64, l *serveLoop) {
	for {
		e.mu.Lock()
		lingering := l.lingering
		l.lingering = false
		e.mu.Unlock()
		p, moved, err := e.slots.serveWithSlot(ctx, task, l, lingering)
		if err != nil {
			e.logServeError(ctx, task, err)
			if lingering {
				time.AfterFunc(time.Second, func() { e.WakeLingering(task) })
			}
			var away error
			if p, away = e.readTaskView(ctx, e.api, task); away != nil || p.view.FellDue {
				p.next = time.Second // nothing else would wake the task for this
			}
		}
		e.mu.Lock()
		if err == nil && moved || l.again && ctx.Err() == nil {
			l.again = false
			e.mu.Unlock()
			continue // look again: without it a request that was recorded after the round's read would wait for ever
		}
		delete(e.loops, task)
		e.wakeAfter(task, p.next)
		handed := l.slotHanded
		e.mu.Unlock()
		if handed { // nobody uses it any more: the node is shutting down
			e.slots.giveSlot()
		}
		return
	}
}

// wakeAfter wakes the task after a while; 0: there is no reason to. e.mu must be held. The timer only decides when this node
// asks the database, whose clock counts. If the node dies, another node's rescuer finds the same a little later.
func (e *Engine) wakeAfter(task int64, d time.Duration) {
	if t := e.timers[task]; t != nil {
		t.Stop()
		delete(e.timers, task)
	}
	if d > 0 && e.base != nil && e.base.Err() == nil {
		e.timers[task] = time.AfterFunc(d+10*time.Millisecond, func() { e.Wake(task) })
	}
}

// wakeTimed wakes all tasks that have a timer. The database's clock was set forward, or this machine slept, so what they wait
// for may be due.
func (e *Engine) wakeTimed() {
	e.mu.Lock()
	tasks := slices.Collect(maps.Keys(e.timers))
	e.mu.Unlock()
	for _, task := range tasks {
		e.Wake(task)
	}
}

// logServeError logs why a loop served nobody. After a run that nobody wanted any more it wakes the task again. If this node shuts
// down, it tells the others.
func (e *Engine) logServeError(ctx context.Context, task int64, err error) {
	switch {
	case errors.Is(err, errNobodyWaits), errors.Is(err, errStopped):
		e.Log.Info("run given up", "task_id", task, "cause", err)
		e.Wake(task)
	case ctx.Err() != nil:
		e.Log.Info("run given up", "task_id", task, "cause", "the node is shutting down")
		e.Announce.Waiting(task) // so that another node takes over at once
	default:
		if facts := e.logLimit.About(err); facts != nil {
			e.Log.Error("round failed; it will be tried again", append(facts, "task_id", task)...)
		}
	}
}

// poke makes a run on this node check whether it is still wanted.
func (e *Engine) poke(task int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.loops[task]; l != nil {
		select {
		case l.pokes <- struct{}{}:
		default:
		}
	}
}

// pokes returns the channel that poke sends to; nil, on which nothing is ever received, if this node does not serve the task.
func (e *Engine) pokes(task int64) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.loops[task]; l != nil {
		return l.pokes
	}
	return nil
}
