package ws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"getwork/assign"
)

// socket is one connection: one goroutine reads, the hub's writers write, and a timer pings.
type socket struct {
	hub    *Hub
	conn   conn
	who    assign.Who
	stream Stream
	ping   *time.Timer

	release func()  // ends the watch over its user's rights; nil: there is none
	next    *socket // next in the writers' queue, whose lock guards it

	mu      sync.Mutex // wake locks it under the feed's lock, so the stream must not be called under it
	writing bool       // it is in the writers' queue, or its one writer has it; stays set once nothing may be written any more
	more    bool       // events came during a write
	ended   bool
	over    bool   // its user's rights ended: what waits is not written any more
	status  Status // to close with, after the queue was written
	reason  string
}

func newSocket(h *Hub, c conn, who assign.Who) *socket {
	s := &socket{hub: h, conn: c, who: who}
	s.stream = h.Open(who, s.wake)
	return s
}

// live serves the socket until it ends. Each of ten thousand sockets keeps this goroutine's stack, so other goroutines do
// whatever would make it grow.
func (s *socket) live(role string) {
	defer s.gone()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	err := s.stream.Start(ctx, role)
	cancel()
	if err != nil {
		s.hub.Log.Warn("read a snapshot", "user", s.who.Holder.User, "error", err)
		s.conn.close(TryAgain, "the snapshot can't be read now; reconnect in a moment")
		return
	}
	s.schedulePing()
	var pace pace
	for {
		if wait := pace.next(time.Now()); wait > 0 {
			time.Sleep(wait) // meanwhile the client's next messages wait in the network
		}
		message, text, err := s.conn.read()
		if err != nil { // the client is gone, or the library has sent it the reason
			return
		}
		m := make(chan *command)
		go func() { m <- decode(message, text) }()
		if !s.obey(<-m) {
			return
		}
	}
}

// gone ends the socket.
func (s *socket) gone() {
	s.mu.Lock()
	s.ended = true
	if s.ping != nil {
		s.ping.Stop()
	}
	s.mu.Unlock()
	if s.release != nil {
		s.release()
	}
	s.conn.drop()
	s.stream.Close()
	s.hub.remove(s)
}

// command is a client's message.
type command struct {
	Type  string   `json:"type"`
	Tasks []string `json:"tasks"`

	unfit bool // it is not JSON
	err   error
}

func decode(message []byte, text bool) *command {
	m := &command{unfit: !text || !json.Valid(message)}
	d := json.NewDecoder(bytes.NewReader(message))
	d.DisallowUnknownFields()
	if d.Decode(m) != nil {
		m.err = assign.Refuse(assign.Invalid, `a message is {"type":"subscribe","tasks":["…"]}, or the same with "unsubscribe"`)
	}
	return m
}

// obey executes a client's message, or answers what is wrong. It returns false if the message ends the socket.
func (s *socket) obey(m *command) bool {
	if m.unfit {
		s.conn.close(Unsupported, "a message is JSON text")
		return false
	}
	err := m.err
	switch {
	case err != nil:
	case m.Type == "subscribe":
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err = s.stream.Follow(ctx, m.Tasks, s.who)
		cancel()
	case m.Type == "unsubscribe":
		s.stream.Unfollow(m.Tasks)
	default:
		err = assign.Refuse(assign.Invalid, `there is no message %q; send "subscribe" or "unsubscribe", and commands over REST`, m.Type)
	}
	if err == nil {
		return true
	}
	problem, logged := s.hub.Problem(err)
	if logged {
		s.hub.Log.Warn("message failed", "user", s.who.Holder.User, "error", err)
	}
	s.stream.Put(assign.Event{Type: "error", Body: problem})
	return true
}

// wake makes a writer write the queue; the stream calls it.
func (s *socket) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = true
	if s.writing || s.ended {
		return
	}
	s.writing = true
	s.hub.queue(s)
}

// write writes events, and then the queue until it is empty. If it must be quick and the client does not take everything at
// once, another goroutine goes on for up to WriteFor.
func (s *socket) write(buffer *[]byte, events []assign.Event, within time.Duration) {
	for {
		left, all, err := s.send(buffer, events, within)
		switch {
		case err != nil || !all && within == s.hub.WriteFor:
			s.conn.drop()
			return // writing stays set, so nothing more is written
		case !all:
			s.hub.working.Go(func() {
				buffer := buffers.Get().(*[]byte)
				s.write(buffer, left, s.hub.WriteFor)
				giveBack(buffer)
			})
			return
		}
		s.stream.Written()
		if !s.turn() {
			return
		}
		var slow bool
		if events, slow = s.stream.Take(); slow {
			s.hub.working.Go(func() { s.conn.close(TryAgain, "too slow to follow; reconnect for a new snapshot") })
			return
		}
	}
}

// turn reports whether there is something to write. If not, the socket's turn is over, and a socket that has a status to
// close with is closed.
func (s *socket) turn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more && !s.ended && !s.over {
		s.more = false
		return true
	}
	s.writing = false
	if status, reason := s.status, s.reason; status != 0 && !s.ended {
		s.hub.working.Go(func() { s.conn.close(status, reason) }) // it waits for the client's answer
	}
	return false
}

// portion is about how many bytes are written at once.
const portion = 32 << 10

// send writes the rest of former events, and then these; left are the events that were not begun.
func (s *socket) send(buffer *[]byte, events []assign.Event, within time.Duration) (left []assign.Event, all bool, err error) {
	for {
		if s.isOver() {
			return nil, true, nil
		}
		b, begun := (*buffer)[:0], events
		for len(events) > 0 && len(b) < portion {
			if b, err = appendFrame(b, events[0]); err != nil {
				s.hub.Log.Error("encode event", "type", events[0].Type, "error", err)
				return nil, false, err
			}
			events = events[1:]
		}
		*buffer = b
		if all, err = s.conn.send(b, within); errors.Is(err, errBusy) {
			return begun, false, nil
		}
		if err != nil || !all || len(events) == 0 {
			return events, all, err
		}
	}
}

// cut closes the socket without its queue: its user may not see what is in it any more.
func (s *socket) cut(status Status, reason string) {
	s.stream.Close()
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.end(status, reason)
}

// isOver reports whether the user's rights ended.
func (s *socket) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// end closes the socket after its queue was written.
func (s *socket) end(status Status, reason string) {
	s.mu.Lock()
	s.status, s.reason = status, reason
	s.mu.Unlock()
	s.wake()
}

// schedulePing pings after a while, and drops the connection if no answer comes, because a failed ping leaves it open.
func (s *socket) schedulePing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
	case s.ping == nil:
		s.ping = time.AfterFunc(s.hub.PingEvery, func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.hub.PongAfter)
			defer cancel()
			if err := s.conn.ping(ctx); err != nil {
				s.conn.drop()
				return
			}
			s.schedulePing()
		})
	default:
		s.ping.Reset(s.hub.PingEvery)
	}
}
