package engine

import (
	"context"
	"sync"
	"time"

	"getwork/assign/pg"
)

// gather reads something for many who ask at about the same time, with one statement for all: those who ask while a
// read is under way wait for the next one. On an idle node who asks is alone, and waits for nobody. When ten thousand
// come back after a node has died, they cost a few dozen reads, and none of them keeps a goroutine's deep stack.
type gather[In, Out any] struct {
	engine *Engine
	read   func(ctx context.Context, asked []In) ([]Out, error) // an answer for each

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

// ask waits for the answer, or until ctx ends.
func (g *gather[In, Out]) ask(ctx context.Context, in In) (out Out, err error) {
	q := &question[In, Out]{in: in, done: make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, q)
	begin := !g.busy
	g.busy = true
	g.mu.Unlock()
	if begin {
		g.engine.mu.Lock()
		begun := g.engine.spawn(g.answer)
		g.engine.mu.Unlock()
		if !begun {
			g.end()
		}
	}
	select {
	case <-q.done:
		return q.out, q.err
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

// end tells who asks that the node has ended.
func (g *gather[In, Out]) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, q := range g.queue {
		q.err = errEnding
		close(q.done)
	}
	g.queue, g.busy = nil, false
}

// answer reads until nobody asks.
func (g *gather[In, Out]) answer(ctx context.Context) {
	for {
		g.mu.Lock()
		asked := g.queue[:min(len(g.queue), addAtOnce)]
		g.queue = g.queue[len(asked):]
		if len(asked) == 0 {
			g.queue, g.busy = nil, false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		g.answerAll(ctx, asked)
	}
}

func (g *gather[In, Out]) answerAll(ctx context.Context, asked []*question[In, Out]) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	in := make([]In, len(asked))
	for i, q := range asked {
		in[i] = q.in
	}
	out, err := g.read(ctx, in)
	if half := len(asked) / 2; half > 0 && pg.Unheld(err) { // somebody's name; it is theirs alone to be told of
		g.answerAll(ctx, asked[:half])
		g.answerAll(ctx, asked[half:])
		return
	}
	for i, q := range asked {
		if q.err = err; err == nil {
			q.out = out[i]
		}
		close(q.done)
	}
}
