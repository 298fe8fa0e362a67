package ws

import (
	"runtime"
	"sync"
	"time"
)

// writers are the few goroutines that write for all sockets of a hub: one for each of ten thousand would leave the
// stacks of ten thousand behind. They end when there is nothing to write.
type writers struct {
	mu          sync.Mutex
	first, last *socket // those who have something to write, in the order of their turns
	busy        int
}

// patience is how long a writer waits for one client. What that one does not take, since it is further behind than the
// system's buffers reach, is left to a goroutine of its own, so that it holds nobody up.
const patience = 2 * time.Millisecond

// queue gives a socket its turn; it must not have one yet.
func (h *Hub) queue(s *socket) {
	w := &h.writers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.first = s
	} else {
		w.last.next = s
	}
	w.last = s
	if w.busy < 4*runtime.GOMAXPROCS(0) {
		w.busy++
		h.working.Go(h.write)
	}
}

// next takes the socket whose turn it is; nil: there is none, and the writer ends.
func (w *writers) next() *socket {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.first
	if s == nil {
		w.busy--
		return nil
	}
	w.first, s.next = s.next, nil
	if w.first == nil {
		w.last = nil
	}
	return s
}

// buffers are what messages are encoded into.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keepBuffer is the largest that is used again.
const keepBuffer = 64 << 10

func (h *Hub) write() {
	buffer := buffers.Get().(*[]byte)
	for s := h.writers.next(); s != nil; s = h.writers.next() {
		s.write(buffer, nil, patience)
	}
	if cap(*buffer) <= keepBuffer {
		buffers.Put(buffer)
	}
}
