package assign

import (
	"context"
	"sync"
	"time"
)

// turns has one thing read at a time, however many ask: to count over the past keeps the database busy, and must not take
// the connections that those who click need. Who asks the same as somebody who still waits for his turn shares his answer.
// One whose reading has begun is not shared: it may have missed what whoever asks now has just heard of.
type turns[Q comparable, A any] struct {
	read func(context.Context, Q) (A, error)
	busy chan struct{} // holds a value while something is read

	mu   sync.Mutex
	next map[Q]*turn[A] // who wait
}

// turn is one reading, and all who share it.
type turn[A any] struct {
	done   chan struct{}
	answer A
	err    error
}

// turnWithin bounds waiting for a turn and reading together: less than what a call may take.
const turnWithin = 12 * time.Second

func newTurns[Q comparable, A any](read func(context.Context, Q) (A, error)) *turns[Q, A] {
	return &turns[Q, A]{read: read, busy: make(chan struct{}, 1), next: map[Q]*turn[A]{}}
}

// ask answers, or fails when ctx ends. Who asks first reads for those who share it, also when nobody waits for his own
// answer any more.
func (t *turns[Q, A]) ask(ctx context.Context, q Q) (answer A, err error) {
	t.mu.Lock()
	mine, shared := t.next[q]
	if !shared {
		mine = &turn[A]{done: make(chan struct{})}
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

// take waits for the turn, and reads.
func (t *turns[Q, A]) take(ctx context.Context, q Q, mine *turn[A]) {
	ctx, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	defer close(mine.done)
	err := error(Refuse(Busy, "others have this node count over the past, too; try again in a moment, or ask for a shorter span"))
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
