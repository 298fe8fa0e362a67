package torture

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"getwork/cmd/internal/proxy"
	"getwork/cmd/lab/torture/history"
)

// receiver is a program to which web hooks lead. It records every delivery. Faults make it fail, answer slowly, or go away.
type receiver struct {
	url    string
	door   *proxy.Proxy // stands before it, and goes away in its place
	server *http.Server

	broken sync.Mutex // held by a fault

	mu     sync.Mutex
	manner func(*rand.Rand) reply // nil: it accepts everything at once
	rng    *rand.Rand
}

// reply is what the receiver does with a delivery.
type reply struct {
	after  time.Duration
	status int // 0: it hangs up
	retry  int // Retry-After, in seconds; 0: none
}

func openReceiver(s *stage) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{rng: rand.New(rand.NewPCG(s.o.Seed, drawsReceiver))}
	if r.door, err = proxy.Start(listener.Addr().String()); err != nil {
		_ = listener.Close()
		return nil, err
	}
	r.url = "http://" + r.door.Addr()
	r.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.receive(s, w, q) }), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = r.server.Serve(listener) }() // until closed
	return r, nil
}

func (r *receiver) close() {
	if r != nil {
		_ = r.server.Close()
		r.door.Close()
	}
}

// flags returns the further flags of getwork serve.
func (r *receiver) flags() []string {
	if r == nil {
		return nil
	}
	return []string{"--webhook-allow", "127.0.0.1/32"}
}

// receive answers a delivery, and records it first: whatever happens because of the answer is recorded later.
func (r *receiver) receive(s *stage, w http.ResponseWriter, q *http.Request) {
	d := history.Delivery{Message: q.Header.Get("Webhook-Id"), Began: s.rec.Now()}
	if _, err := io.Copy(io.Discard, q.Body); err != nil {
		return // the node, or the way to it, has gone
	}
	a := r.reply()
	select {
	case <-time.After(a.after):
	case <-s.ctx.Done():
		return
	}
	d.Ended, d.Status = s.rec.Now(), a.status
	s.rec.Add(history.Entry{Delivery: &d})
	if a.status == 0 {
		panic(http.ErrAbortHandler)
	}
	if a.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.retry))
	}
	w.WriteHeader(a.status)
}

func (r *receiver) reply() reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.manner == nil {
		return reply{status: http.StatusNoContent}
	}
	return r.manner(r.rng)
}

func (r *receiver) behave(manner func(*rand.Rand) reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.manner = manner
}

// failing fails in one of several ways, and now and then not at all.
func failing(rng *rand.Rand) reply {
	switch status := []int{200, 204, 302, 429, 500, 503, 0, 0}[rng.IntN(8)]; status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return reply{status: status, retry: rng.IntN(3)}
	default:
		return reply{status: status}
	}
}

// slow takes up to 4 s, or longer than a node waits.
func slow(rng *rand.Rand) reply {
	if rng.IntN(4) == 0 {
		return reply{after: 12 * time.Second, status: http.StatusNoContent}
	}
	return reply{after: between(rng.Float64(), 50*time.Millisecond, 4*time.Second), status: http.StatusNoContent}
}

// onReceiver does something to the receiver, one fault at a time.
func (s *storm) onReceiver(f planned, note string, do, undo func()) {
	if !s.receiver.broken.TryLock() {
		s.skip()
		return
	}
	defer s.receiver.broken.Unlock()
	s.strike(f, history.Receiver, note, do, undo)
}

func (s *storm) failReceiver(f planned) {
	s.onReceiver(f, "", func() { s.receiver.behave(failing) }, func() { s.receiver.behave(nil) })
}

func (s *storm) slowReceiver(f planned) {
	s.onReceiver(f, "", func() { s.receiver.behave(slow) }, func() { s.receiver.behave(nil) })
}

// loseReceiver cuts the receiver off: connections are refused, or nothing arrives.
func (s *storm) loseReceiver(f planned) {
	door := s.receiver.door
	if f.chance%2 == 0 {
		s.onReceiver(f, "refused", func() { door.Refuse(true); door.Cut() }, func() { door.Refuse(false) })
		return
	}
	d, note := direction(planned{chance: f.chance >> 1})
	s.onReceiver(f, note, func() { door.Freeze(d) }, door.Thaw)
}
