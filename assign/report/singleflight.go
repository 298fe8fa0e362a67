package report

import (
	"context"
	"sync"
	"time"

	"getwork/assign"
)

// singleFlight reads one thing at a time, however many callers ask: counting over the past keeps the database busy, and must
// not take the connections that clicks need. Callers who ask the same before the read begins share its answer. A read that
// has begun is not shared: it may have missed a change that a later caller has just heard of.
type singleFlight[Q comparable, A any] struct {
	read func(context.Context, Q) (A, error)
	busy chan struct{} // holds a value while something is read

	mu   sync.Mutex
	next map[Q]*flight[A] // reads that have not begun
}

// flight is one read, and all callers who share it.
type flight[A any] struct {
	done   chan struct{}
	answer A
	err    error
}

// readWithin bounds waiting and reading together: less than what a call may take.
const readWithin = 12 * time.Second

func newSingleFlight[Q comparable, A any](read func(context.Context, Q) (A, error)) *singleFlight[Q, A] {
	return &singleFlight[Q, A]{read: read, busy: make(chan struct{}, 1), next: map[Q]*flight[A]{}}
}

// ask returns the answer, or fails when ctx ends. The first caller reads for all callers who share the answer, even if its
// own context ends meanwhile.
func (t *singleFlight[Q, A]) ask(ctx context.Context, q Q) (answer A, err error) {
	t.mu.Lock()
	mine, shared := t.next[q]
	if !shared {
		mine = &flight[A]{done: make(chan struct{})}
		t.next[q] = mine
	}
	t.mu.Unlock()
	if !shared {
		t.take(context.WithoutCancel(ctx), q, mine)
	}
	select {
	case <-mine.done:
		return mine.answer, mine.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// take waits until nothing else is read, and reads.
func (t *singleFlight[Q, A]) take(ctx context.Context, q Q, mine *flight[A]) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	defer close(mine.done)
	err := error(assign.Refuse(assign.Busy, "this node is counting the past for other callers; try again in a moment, or ask for a shorter span"))
	select {
	case t.busy <- struct{}{}:
		defer func() { <-t.busy }()
		err = nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	delete(t.next, q)
	t.mu.Unlock()
	if mine.err = err; err == nil {
		mine.answer, mine.err = t.read(ctx, q)
	}
}
