package cluster

import (
	"context"

	"getwork/assign"
	"getwork/ws/client"
)

// Socket is a client's live channel.
type Socket struct{ *client.Socket }

// Event is one message of a live channel.
type Event = client.Event

// Dial opens the live channel and reads the hello and the snapshot. The caller must Close the socket.
func (c Client) Dial(ctx context.Context) (s *Socket, snapshot assign.Pipeline, err error) {
	conn, err := c.api().Socket(ctx)
	if err != nil {
		return nil, snapshot, err
	}
	return &Socket{conn}, conn.Snapshot, nil
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
