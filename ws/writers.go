package ws

import (
	"runtime"
	"sync"
	"time"
)

// writers are the few goroutines that write for all sockets of a hub. A writer for each of ten thousand sockets would
// leave ten thousand stacks behind. Writers end when there is nothing to write.
type writers struct {
	mu          sync.Mutex
	first, last *socket // the queue of sockets that have something to write
	busy        int
}

// patience is how long a writer waits for one client. A client that is further behind than the system's buffers reach gets
// a goroutine of its own, so that it delays no other. Over TLS every write gets one (see wire).
const patience = 2 * time.Millisecond

// queue adds a socket, which must not be in the queue yet.
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

// next takes the first socket from the queue; with nil, the queue is empty and the writer ends.
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

// buffers holds buffers for encoding messages.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keepBuffer is the size of the largest buffer that is reused.
const keepBuffer = 64 << 10

func (h *Hub) write() {
	buffer := buffers.Get().(*[]byte)
	for s := h.writers.next(); s != nil; s = h.writers.next() {
		s.write(buffer, nil, patience)
	}
	giveBack(buffer)
}

// giveBack lends the buffer to the next write.
func giveBack(buffer *[]byte) {
	if cap(*buffer) <= keepBuffer {
		buffers.Put(buffer)
	}
}
