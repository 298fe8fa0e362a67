package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"getwork/assign"
)

// withRunSlot calls f with one of the node's run slots, so that previews, explanations, claims and rechecks together with the
// runs are never more than the database was promised. A caller who gets none within wait, or before ctx's deadline, is refused
// with [assign.Busy]; a node that drains refuses with [assign.Unavailable], and ends f's context.
func (e *Engine) withRunSlot(ctx context.Context, wait time.Duration, f func(context.Context) error) error {
	base, done := e.join()
	if base == nil {
		return errEnding
	}
	defer done()
	if err := e.takePlace(ctx, base, wait); err != nil {
		return err
	}
	defer func() { // after the connection was given back: whoever takes the slot finds one
		e.leave(ctx)
		e.givePlace()
	}()
	ctx, cancel := e.untilEnding(ctx)
	defer cancel()
	return f(ctx)
}

// takePlace takes a place for runs, and waits so long for one; 0: not at all.
func (e *Engine) takePlace(ctx, base context.Context, wait time.Duration) error {
	if e.takeNow(ctx) {
		return nil
	}
	if wait == 0 {
		return errNoPlace()
	}
	mine := &inLine{since: time.Now(), given: make(chan struct{})}
	e.mu.Lock()
	if e.line = append(e.line, mine); e.free > 0 { // one was given back since
		e.free--
		e.giveInLine()
	}
	e.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	var err error
	select {
	case <-mine.given:
		return nil
	case <-base.Done():
		err = errEnding
	case <-late.C:
		err = errNoPlace()
	case <-ctx.Done():
		err = context.Cause(ctx)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errNoPlace()
		}
	}
	e.mu.Lock()
	at := slices.Index(e.line, mine)
	if at >= 0 {
		e.line = slices.Delete(e.line, at, at+1)
	}
	e.mu.Unlock()
	if at < 0 { // it was given just now
		e.givePlace()
	}
	return err
}

func errNoPlace() error {
	return assign.Refuse(assign.Busy, "all places for queries on this node are taken; try again in a moment")
}

// join counts the caller among what the engine waits for when it ends, until done is called. The context ends when
// the engine begins to; nil: it has ended, or not begun.
func (e *Engine) join() (base context.Context, done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.base == nil || e.base.Err() != nil {
		return nil, nil
	}
	e.working.Add(1)
	return e.base, e.working.Done
}

// untilEnding is ctx, cancelled when the engine begins to end: a node that drains waits for nobody's query.
func (e *Engine) untilEnding(ctx context.Context) (context.Context, context.CancelFunc) {
	e.mu.Lock()
	base := e.base
	e.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(base, func() { cancel(errEnding) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
