package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
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
	over := make(chan rights.End, 1)
	defer s.follow(c, func(why rights.End) {
		stream.Cut()
		over <- why
	})()
	if tasks := r.URL.Query().Get("task"); tasks != "" {
		if err := stream.Follow(r.Context(), strings.Split(tasks, ","), c.Who()); err != nil {
			return err
		}
	}
	if err := stream.Start(r.Context(), string(c.Role)); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-s.Draining:
			events, _ := stream.Take() // hello comes first, here, too
			for _, e := range events {
				if !s.tell(w, e) {
					return nil
				}
			}
			s.tell(w, assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Draining}})
			s.part(r)
			return nil
		case why := <-over:
			s.tell(w, assign.Event{Type: "error", Body: endOf(why).Problem()})
			return nil
		case <-idle.C:
			if !send(w, ": still here\n\n") {
				return nil
			}
		case <-ready:
			select {
			case why := <-over: // what was taken before may not be delivered any more
				over <- why
				continue
			default:
			}
			events, slow := stream.Take()
			if slow {
				return nil // the client reconnects for a new snapshot
			}
			for _, e := range events {
				if !s.tell(w, e) {
					return nil
				}
			}
		}
	}
}

// tell writes one event.
func (s *server) tell(w http.ResponseWriter, e assign.Event) bool {
	b, err := json.Marshal(e)
	if err != nil {
		s.Log.Error("encode event", "error", err)
		return false
	}
	return send(w, fmt.Sprintf("event: %s\ndata: %s\n\n", e.Type, b))
}

// send writes and flushes. It gives up a client that takes nothing for 15 s.
func send(w http.ResponseWriter, text string) bool {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(15 * time.Second))
	if _, err := w.Write([]byte(text)); err != nil {
		return false
	}
	return control.Flush() == nil
}
