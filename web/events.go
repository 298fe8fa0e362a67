package web

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
)

// keepAlive is how often an idle event stream sends a comment: proxies cut streams that are silent for 30 to 60 s.
const keepAlive = 20 * time.Second

// events is the live channel as text/event-stream: hello, snapshot, then events, the same JSON as on the socket.
// With ?task=a,b it follows those tasks.
func (s *server) events(w http.ResponseWriter, r *http.Request) error {
	c := CallerOf(r)
	v, err := parameters(r)
	if err != nil {
		return err
	}
	leave, err := s.stay(r)
	switch {
	case errors.Is(err, errFull):
		return assign.Refuse(assign.Unavailable, "this node has as many event streams as it allows; another node may have room")
	case err != nil:
		return assign.Refuse(assign.Busy, "you have as many event streams and held answers on this node as a user may; close some")
	}
	defer leave()
	s.streams.Add(1)
	defer s.streams.Add(-1)
	ready := make(chan struct{}, 1)
	stream := s.Feed.Open(c.Who(), func() {
		select {
		case ready <- struct{}{}:
		default:
		}
	})
	defer stream.Close()
	out := &outlet{w: w, control: http.NewResponseController(w), over: make(chan rights.End, 1)}
	defer out.close()
	defer s.follow(c, func(why rights.End) {
		stream.Cut()
		out.cut(why)
	})()
	if tasks := taskNames(v); tasks != nil {
		if err := stream.Follow(r.Context(), tasks, c.Who()); err != nil {
			return err
		}
	}
	if err := stream.Start(r.Context(), string(c.Role)); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	handshaken(r)
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-s.Draining:
			events, _ := stream.Take() // hello comes first, here, too
			if s.tell(out, append(events, assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Draining}})...) {
				s.part(r)
			}
			return nil
		case why := <-out.over:
			s.tell(out, assign.Event{Type: "error", Body: endOf(why).Problem()})
			return nil
		case <-idle.C:
			if !out.send([]byte(": still here\n\n")) {
				return nil
			}
		case <-ready:
			events, slow := stream.Take()
			if slow {
				return nil // the client reconnects for a new snapshot
			}
			if !s.tell(out, events...) {
				return nil
			}
			stream.Written()
		}
	}
}

// tell writes events, and leaves out those that come when the stream is cut.
func (s *server) tell(out *outlet, events ...assign.Event) bool {
	for _, e := range events {
		if e.Type != "error" && out.isCut() {
			return true // why comes next
		}
		b, err := e.AppendMessage([]byte("event: " + e.Type + "\ndata: "))
		if err != nil {
			s.Log.Error("encode event", "error", err)
			return false
		}
		if !out.send(append(b, "\n\n"...)) {
			return false
		}
	}
	return true
}

const (
	takesWithin = 15 * time.Second // a client of an event stream that takes nothing for so long is given up
	partsWithin = time.Second      // the same when its user's rights have ended
)

// outlet writes an event stream to a client, which may be slow, until the stream is cut from elsewhere: its user may not see what
// comes then, also if it was taken from the stream before. A write that waits for the client ends soon after.
type outlet struct {
	w       http.ResponseWriter
	control *http.ResponseController
	over    chan rights.End // gets why the stream was cut

	mu     sync.Mutex
	until  time.Time // when writes end; zero: it is not cut
	closed bool      // the answer is over: its connection may serve another call
}

// send writes and flushes.
func (o *outlet) send(text []byte) bool {
	o.mu.Lock()
	until := o.until
	if until.IsZero() {
		until = time.Now().Add(takesWithin)
	}
	_ = o.control.SetWriteDeadline(until)
	o.mu.Unlock()
	if _, err := o.w.Write(text); err != nil {
		return false
	}
	return o.control.Flush() == nil
}

// cut ends the stream. It may be called at any time, and once.
func (o *outlet) cut(why rights.End) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over <- why
	if o.until = time.Now().Add(partsWithin); !o.closed {
		_ = o.control.SetWriteDeadline(o.until)
	}
}

func (o *outlet) isCut() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.until.IsZero()
}

// close ends cut's hold on the connection.
func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}
