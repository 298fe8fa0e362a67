package records

import (
	"context"
	"sync"
	"time"

	"getwork/assign"
	"getwork/assign/pg"
)

// Records reads what the tables say. The context of a call chooses the pool ([pg.AsOwn]); without that mark it is the pool of
// users' calls.
type Records struct {
	db  pg.Router
	sql func(string) string

	searches chan struct{} // holds one value for each search for a value that is under way
	patience time.Duration // how long such a search may take

	pace paces

	lists Batcher[struct{}, []assign.Task]
}

// New returns Records that read from db. sql puts the schema's name into a statement; nil: the schema is getwork.
func New(db pg.Router, sql func(string) string) *Records {
	if sql == nil {
		sql = func(statement string) string { return statement }
	}
	rs := &Records{db: db, sql: sql, searches: make(chan struct{}, 2), patience: searchPatience}
	rs.lists.Read = rs.list
	return rs
}

// MaxBatch is the most requests or holders that one statement reads: few enough to be sorted in memory.
const MaxBatch = 1000

// readFor bounds one read of a [Batcher].
const readFor = 10 * time.Second

// Batcher answers many callers who ask at about the same time with one statement. Callers who come while a read is under way
// share the next one. On an idle node a caller is alone and waits for nobody. When ten thousand clients reconnect after a
// node has died, they cost a few dozen reads, and none of them keeps a goroutine's deep stack. The zero value with Read set
// is ready for use.
type Batcher[In, Out any] struct {
	// Read returns one answer for each of at most MaxBatch questions, in their order. One goroutine at a time calls it, with a
	// context of the engine's own work. If the database can't store the text of a question, Read is called again with each half
	// of them.
	Read func(ctx context.Context, asked []In) ([]Out, error)

	mu    sync.Mutex
	queue []*question[In, Out]
	busy  bool // a goroutine reads, and will find what is put in the queue
}

type question[In, Out any] struct {
	in   In
	out  Out
	err  error
	done chan struct{}
}

// Ask waits for the answer, or until ctx ends. The read itself goes on for at most ten seconds, because others may wait for
// it. Callers may share what the answer points to, so they must not change it.
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

// Queued returns the number of callers who wait for a read that has not begun.
func (b *Batcher[In, Out]) Queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// answer reads until the queue is empty.
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
	if half := len(asked) / 2; half > 0 && pg.Unheld(err) { // one caller's text is at fault, and only that caller is refused
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
