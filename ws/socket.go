package ws

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"getwork/assign"
)

// socket is one connection: one goroutine reads, one writes while there is something to write, and a timer pings.
type socket struct {
	hub    *Hub
	conn   conn
	who    assign.Who
	role   string
	stream *assign.Stream
	ping   *time.Timer

	mu      sync.Mutex
	writing bool
	more    bool // something came while writing
	ended   bool
	status  Status // to close with, after what is queued was written
	reason  string
	writers sync.WaitGroup
}

func newSocket(h *Hub, c conn, who assign.Who, role string) *socket {
	s := &socket{hub: h, conn: c, who: who, role: role}
	s.stream = h.Engine.OpenStream(who.Holder, s.wake)
	return s
}

// live serves the socket until it ends.
func (s *socket) live(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		s.mu.Lock()
		s.ended = true
		if s.ping != nil {
			s.ping.Stop()
		}
		s.mu.Unlock()
		s.conn.drop()
		s.stream.Close()
		s.writers.Wait()
		s.hub.remove(s)
	}()
	start, started := context.WithTimeout(ctx, 10*time.Second)
	err := s.stream.Start(start, s.role)
	started()
	if err != nil {
		s.hub.Log.Warn("read a snapshot", "user", s.who.Holder.User, "error", err)
		s.conn.close(TryAgain, "the snapshot can't be read now; come back in a moment")
		return
	}
	s.schedulePing()
	for {
		message, text, err := s.conn.read(ctx)
		switch {
		case err != nil: // gone, or the library has told the client why
			return
		case !text || !json.Valid(message):
			s.conn.close(Unsupported, "a message is JSON text")
			return
		}
		if err := s.obey(ctx, message); err != nil {
			problem, logged := assign.ProblemOf(err)
			if logged {
				s.hub.Log.Warn("message failed", "user", s.who.Holder.User, "error", err)
			}
			s.stream.Put(assign.Event{Type: "error", Body: problem})
		}
	}
}

// obey carries out a client's message.
func (s *socket) obey(ctx context.Context, message []byte) error {
	var m struct {
		Type  string   `json:"type"`
		Tasks []string `json:"tasks"`
	}
	d := json.NewDecoder(bytes.NewReader(message))
	d.DisallowUnknownFields()
	if d.Decode(&m) != nil {
		return assign.Refuse(assign.Invalid, `a message is {"type":"subscribe","tasks":["…"]}, or the same with "unsubscribe"`)
	}
	switch m.Type {
	case "subscribe":
		return s.stream.Follow(ctx, m.Tasks, s.who)
	case "unsubscribe":
		s.stream.Unfollow(m.Tasks)
		return nil
	}
	return assign.Refuse(assign.Invalid, `there is no message %q; send "subscribe" or "unsubscribe", and commands over REST`, m.Type)
}

// wake has what is queued written; called by the stream.
func (s *socket) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = true
	if s.writing || s.ended {
		return
	}
	s.writing = true
	s.writers.Go(s.write)
}

// write writes until nothing is queued, and then ends, so that an idle connection costs no goroutine for it.
func (s *socket) write() {
	for {
		s.mu.Lock()
		if !s.more || s.ended {
			status, reason, ended := s.status, s.reason, s.ended
			s.writing = false
			s.mu.Unlock()
			if status != 0 && !ended {
				s.conn.close(status, reason)
			}
			return
		}
		s.more = false
		s.mu.Unlock()
		events, slow := s.stream.Take()
		if slow {
			s.conn.close(TryAgain, "too slow to follow; come back for a new snapshot")
			return // and writing stays set: nothing more is written
		}
		for _, e := range events {
			if !s.send(e) {
				s.conn.drop()
				return
			}
		}
	}
}

func (s *socket) send(e assign.Event) bool {
	message, err := encode(e)
	if err != nil {
		s.hub.Log.Error("encode event", "type", e.Type, "error", err)
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.hub.WriteFor)
	defer cancel()
	return s.conn.write(ctx, message) == nil
}

// end closes the socket after what is queued was written.
func (s *socket) end(status Status, reason string) {
	s.mu.Lock()
	s.status, s.reason = status, reason
	s.mu.Unlock()
	s.wake()
}

// schedulePing pings after a while, and drops the connection when no answer comes: a ping that fails does not.
func (s *socket) schedulePing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ping = time.AfterFunc(s.hub.PingEvery, func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.hub.PongAfter)
		defer cancel()
		if err := s.conn.ping(ctx); err != nil {
			s.conn.drop()
			return
		}
		s.schedulePing()
	})
}
