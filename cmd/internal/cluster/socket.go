package cluster

import (
	"context"
	"sync"

	"getwork/assign"
	"getwork/ws/client"
)

// Socket is a client's live channel. It reads from the start, since a node ends a socket that no longer answers its pings; on a
// slow machine a test may read only a minute later.
type Socket struct {
	*client.Socket
	news chan struct{} // has room for one sign that something came

	mu    sync.Mutex
	heard []Event
	err   error // why no more will come
}

// Event is one message of a live channel.
type Event = client.Event

// Dial opens the live channel and reads the hello and the snapshot. The caller must Close the socket.
func (c Client) Dial(ctx context.Context) (s *Socket, snapshot assign.Pipeline, err error) {
	conn, err := c.api().Socket(ctx)
	if err != nil {
		return nil, snapshot, err
	}
	s = &Socket{Socket: conn, news: make(chan struct{}, 1)}
	go s.listen()
	return s, conn.Snapshot, nil
}

func (s *Socket) listen() {
	for ended := false; !ended; {
		e, err := s.Socket.Next(context.Background())
		s.mu.Lock()
		if err == nil {
			s.heard = append(s.heard, e)
		}
		s.err, ended = err, err != nil
		s.mu.Unlock()
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// Next waits for the next event. If ctx ends first the socket is closed. Only one goroutine may wait at a time.
func (s *Socket) Next(ctx context.Context) (Event, error) {
	for {
		s.mu.Lock()
		if len(s.heard) > 0 {
			e := s.heard[0]
			s.heard = s.heard[1:]
			s.mu.Unlock()
			return e, nil
		}
		err := s.err
		s.mu.Unlock()
		if err != nil {
			return Event{}, err
		}
		select {
		case <-s.news:
		case <-ctx.Done():
			s.Close()
			return Event{}, ctx.Err()
		}
	}
}

// Until reads messages until wanted accepts one, and returns it. If ctx ends first the socket is closed.
func (s *Socket) Until(ctx context.Context, wanted func(Event) bool) (Event, error) {
	for {
		e, err := s.Next(ctx)
		if err != nil || wanted(e) {
			return e, err
		}
	}
}
