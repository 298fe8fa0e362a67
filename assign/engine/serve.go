package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"getwork/assign/pg"
)

// serveLoop is this node's look at one task: one at a time, and once more if it was asked for meanwhile.
type serveLoop struct {
	again      bool
	slotHanded bool          // it has a place in hand that it was given, see place.go
	hasSlot    bool          // it has taken one
	lingering  bool          // something can be handed out again: serve also those who linger
	pokes      chan struct{} // tells the run under way to check whether it is still wanted
}

// Wake has this node see whether the task has requests to serve, and serve them. It does not block. Called after
// everything that may have made a request servable; called in vain it costs one indexed query.
func (e *Engine) Wake(task int64) { e.wake(task, false) }

// WakeLingering is Look after something has become free: work was let go of or ran out, an item was pushed or redriven. Who
// lingers is served by that at once, if an inbox or a fresh shelf can give it; otherwise the next run finds it.
func (e *Engine) WakeLingering(task int64) { e.wake(task, true) }

// wakeFreed stirs tasks of which work was let go of, and those that they conflict with: who held it may have its item there
// now.
func (e *Engine) wakeFreed(ctx context.Context, tasks ...int64) {
	ctx, cancel := pg.Detached(ctx) // it is committed, whether or not the caller still waits
	defer cancel()
	partners, _ := e.partners(ctx, e.api, tasks...) // without them, who lingers there is looked at again in a while
	for _, task := range append(partners, tasks...) {
		e.WakeLingering(task)
	}
}

func (e *Engine) wake(task int64, stirred bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wakeLocked(task, stirred)
}

// wakeLocked is lookAt for who holds e.mu.
func (e *Engine) wakeLocked(task int64, stirred bool) {
	if l := e.loops[task]; l != nil {
		l.again = true
		l.lingering = l.lingering || stirred
		return
	}
	l := &serveLoop{pokes: make(chan struct{}, 1), lingering: stirred}
	if e.spawn(func(ctx context.Context) { e.runServeLoop(ctx, task, l) }) {
		e.loops[task] = l
	}
}

// runServeLoop tries until nothing is left that this node can do for the task.
func (e *Engine) runServeLoop(ctx context.Context, task int64, l *serveLoop) {
	for {
		e.mu.Lock()
		stirred := l.lingering
		l.lingering = false
		e.mu.Unlock()
		p, moved, err := e.slots.serveWithSlot(ctx, task, l, stirred)
		if err != nil {
			e.logServeError(ctx, task, err)
			if stirred {
				time.AfterFunc(time.Second, func() { e.WakeLingering(task) })
			}
			var away error
			if p, away = e.readTaskView(ctx, e.api, task); away != nil || p.view.FellDue {
				p.next = time.Second // nothing else would say so again
			}
		}
		e.mu.Lock()
		if err == nil && moved || l.again && ctx.Err() == nil {
			l.again = false
			e.mu.Unlock()
			continue // the look again: without it, who was recorded behind the round's back waits for ever
		}
		delete(e.loops, task)
		e.wakeAfter(task, p.next)
		handed := l.slotHanded
		e.mu.Unlock()
		if handed { // too late: the node is shutting down
			e.slots.giveSlot()
		}
		return
	}
}

// wakeAfter looks at the task again after a while; 0: there is no reason to. e.mu must be held. It is this node's timer,
// and only decides when the database, whose clock counts, is asked. If the node dies, another's periodic look finds
// the same a little later.
func (e *Engine) wakeAfter(task int64, d time.Duration) {
	if t := e.timers[task]; t != nil {
		t.Stop()
		delete(e.timers, task)
	}
	if d > 0 && e.base != nil && e.base.Err() == nil {
		e.timers[task] = time.AfterFunc(d+10*time.Millisecond, func() { e.Wake(task) })
	}
}

// wakeTimed looks at all tasks that have a timer: the database's clock was set forward, or this machine slept, and what
// they wait for may be due.
func (e *Engine) wakeTimed() {
	e.mu.Lock()
	tasks := slices.Collect(maps.Keys(e.timers))
	e.mu.Unlock()
	for _, task := range tasks {
		e.Wake(task)
	}
}

func (e *Engine) logServeError(ctx context.Context, task int64, err error) {
	switch {
	case errors.Is(err, errNobodyWaits), errors.Is(err, errStopped):
		e.Log.Info("run given up", "task_id", task, "cause", err)
		e.Wake(task)
	case ctx.Err() != nil:
		e.Log.Info("run given up", "task_id", task, "cause", "the node is shutting down")
		e.Announce.Waiting(task) // so that another takes over at once
	default:
		if facts := e.complaints.About(err); facts != nil {
			e.Log.Error("round failed; it will be tried again", append(facts, "task_id", task)...)
		}
	}
}

// poke has a run under way on this node check whether it is still wanted.
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

func (e *Engine) pokes(task int64) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.loops[task]; l != nil {
		return l.pokes
	}
	return nil
}
