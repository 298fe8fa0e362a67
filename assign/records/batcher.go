package records

import (
	"context"
	"sync"
	"time"

	"getwork/assign/pg"
)

// MaxBatch is for how many requests or holders one statement reads: few enough to be sorted in memory.
const MaxBatch = 1000

// readFor bounds one read of a [Batcher].
const readFor = 10 * time.Second

// Batcher reads something for many callers who ask at about the same time, with one statement for all: those who ask while a
// read is under way wait for the next one. On an idle node a caller is alone, and waits for nobody. When ten thousand
// come back after a node has died, they cost a few dozen reads, and none of them keeps a goroutine's deep stack.
// The zero value with Read is ready.
type Batcher[In, Out any] struct {
	Read func(ctx context.Context, asked []In) ([]Out, error) // an answer for each of at most MaxBatch

	mu    sync.Mutex
	queue []*question[In, Out]
	busy  bool
}

type question[In, Out any] struct {
	in   In
	out  Out
	err  error
	done chan struct{}
}

// Ask waits for the answer, or until ctx ends. The read itself goes on when ctx ends, for at most ten seconds, since others may
// wait for it.
func (b *Batcher[In, Out]) Ask(ctx context.Context, in In) (out Out, err error) {
	q := &question[In, Out]{in: in, done: make(chan struct{})}
	b.mu.Lock()
	b.queue = append(b.queue, q)
	begin := !b.busy
	b.busy = true
	b.mu.Unlock()
	if begin {
		go b.answer()
	}
	select {
	case <-q.done:
		return q.out, q.err
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

// Queued is how many callers wait for a read that has not begun.
func (b *Batcher[In, Out]) Queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// answer reads until nobody asks.
func (b *Batcher[In, Out]) answer() {
	for {
		b.mu.Lock()
		asked := b.queue[:min(len(b.queue), MaxBatch)]
		b.queue = b.queue[len(asked):]
		if len(asked) == 0 {
			b.queue, b.busy = nil, false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.answerAll(asked)
	}
}

func (b *Batcher[In, Out]) answerAll(asked []*question[In, Out]) {
	ctx, cancel := context.WithTimeout(pg.AsOwn(context.Background()), readFor)
	defer cancel()
	in := make([]In, len(asked))
	for i, q := range asked {
		in[i] = q.in
	}
	out, err := b.Read(ctx, in)
	if half := len(asked) / 2; half > 0 && pg.Unheld(err) { // somebody's name; only the one who sent it is to be told
		b.answerAll(asked[:half])
		b.answerAll(asked[half:])
		return
	}
	for i, q := range asked {
		if q.err = err; err == nil {
			q.out = out[i]
		}
		close(q.done)
	}
}
