package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"getwork/assign"
	"getwork/ws"
)

// Socket is a client's live channel.
type Socket struct {
	Hello assign.Hello // what the node said first

	c *ws.Client
}

// Event is one message of it. Besides Type, what belongs to that type is set.
type Event struct {
	Type     string            `json:"type"`
	Hello    *assign.Hello     `json:"hello"`
	Snapshot *assign.Pipeline  `json:"snapshot"`
	Request  *assign.Request   `json:"request"`
	Work     *assign.Work      `json:"work"`
	Run      *assign.RunEvent  `json:"run"`
	Task     *assign.Task      `json:"task"`
	Node     *assign.NodeEvent `json:"node"`
	Error    *assign.Problem   `json:"error"`
}

// Dial opens the live channel and reads hello and the snapshot. Whoever dials must Close.
func (c Client) Dial(ctx context.Context) (s *Socket, snapshot assign.Pipeline, err error) {
	conn, err := ws.Dial(ctx, nil, c.URL+"/api/v1/ws", c.header())
	if err != nil {
		return nil, snapshot, err
	}
	s = &Socket{c: conn}
	for _, want := range []string{"hello", "snapshot"} {
		e, err := s.Next(ctx)
		if err == nil && e.Type != want {
			err = fmt.Errorf("got %q where %q comes", e.Type, want)
		}
		if err != nil {
			s.Close()
			return nil, snapshot, err
		}
		switch {
		case e.Hello != nil:
			s.Hello = *e.Hello
		case e.Snapshot != nil:
			snapshot = *e.Snapshot
		}
	}
	return s, snapshot, nil
}

// Next waits for the next message. If ctx ends first the socket is closed.
func (s *Socket) Next(ctx context.Context) (Event, error) {
	var e Event
	b, err := s.c.Read(ctx)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("message %s: %w", b, err)
	}
	return e, nil
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

// Send sends a message, such as {"type":"subscribe","tasks":["verify"]}.
func (s *Socket) Send(ctx context.Context, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.c.Write(ctx, b)
}

// Close ends the channel; it may be called again.
func (s *Socket) Close() { s.c.Close() }
