package cluster

import (
	"context"

	"getwork/assign"
	"getwork/ws/client"
)

// Socket is a client's live channel.
type Socket struct{ *client.Socket }

// Event is one message of it.
type Event = client.Event

// Dial opens the live channel and reads hello and the snapshot. Whoever dials must Close.
func (c Client) Dial(ctx context.Context) (s *Socket, snapshot assign.Pipeline, err error) {
	conn, err := c.api().Socket(ctx)
	if err != nil {
		return nil, snapshot, err
	}
	return &Socket{conn}, conn.Snapshot, nil
}

// Until reads messages until one is wanted, and returns that one. If ctx ends first the socket is closed.
func (s *Socket) Until(ctx context.Context, wanted func(Event) bool) (Event, error) {
	for {
		e, err := s.Next(ctx)
		if err != nil || wanted(e) {
			return e, err
		}
	}
}
