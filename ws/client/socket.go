package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"getwork/assign"
	"getwork/ws"
)

// Event is one message of the live channel. Type is set, and the field for that type. The type "tasks", which means that a
// task is new, changed or deleted, has no field.
//
// A snapshot may be older than the answer to the last call. A request or work that it lacks has not therefore ended: read it.
type Event struct {
	Type     string            `json:"type"`
	Hello    *assign.Hello     `json:"hello"`
	Snapshot *assign.Pipeline  `json:"snapshot"`
	Request  *assign.Request   `json:"request"`
	Work     *assign.Work      `json:"work"`
	Absence  *assign.Absence   `json:"absence"`
	Run      *assign.RunEvent  `json:"run"`
	Task     *assign.Task      `json:"task"`
	Node     *assign.NodeEvent `json:"node"`
	Error    *assign.Problem   `json:"error"`
}

// Socket is one connection of the live channel. One goroutine may read while others send or close.
type Socket struct {
	Hello    assign.Hello    // the caller's identity as the node knows it
	Snapshot assign.Pipeline // the caller's work and waiting requests at the start; later changes come as events

	conn *ws.Client
	url  string // of the node
}

// Socket opens the live channel, and reads hello and the snapshot. The caller must Close it; ctx bounds only the opening.
// A refusal is a [Problem]. See [Live] for a channel that reconnects.
func (c *Client) Socket(ctx context.Context) (*Socket, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	conn, err := ws.Dial(ctx, c.http(), c.base()+api+path("ws"), c.header())
	if refused := new(ws.Refused); errors.As(err, &refused) {
		return nil, c.refusal(refused.Response, refused.Body)
	}
	if err != nil {
		return nil, noAnswer(c.base(), err)
	}
	s := &Socket{conn: conn, url: c.base()}
	for _, want := range []string{"hello", "snapshot"} {
		e, err := s.Next(ctx)
		switch {
		case err == nil && e.Type != want:
			err = &Foreign{URL: c.base(), Err: fmt.Errorf("got %q where %q comes", e.Type, want)}
		case e.Hello != nil:
			s.Hello = *e.Hello
		case e.Snapshot != nil:
			s.Snapshot = *e.Snapshot
		}
		if err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Next waits for the next event. Call it all the time: the node considers a client that does not read dead after 40 s at most, and
// closes with 1013 if too many events wait. If ctx ends, so does the connection. [ws.CloseStatus] explains an error.
func (s *Socket) Next(ctx context.Context) (e Event, err error) {
	b, err := s.conn.Read(ctx)
	if err != nil {
		return e, fmt.Errorf("read the live channel: %w", err)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, &Foreign{URL: s.url, Err: err}
	}
	return e, nil
}

// Subscribe follows tasks by name: their task and run events come. A task that does not exist, or that the caller may not see,
// is answered with an error event.
func (s *Socket) Subscribe(ctx context.Context, tasks ...string) error {
	return s.Send(ctx, subscription{"subscribe", tasks})
}

// Unsubscribe ends a subscription.
func (s *Socket) Unsubscribe(ctx context.Context, tasks ...string) error {
	return s.Send(ctx, subscription{"unsubscribe", tasks})
}

type subscription struct {
	Type  string   `json:"type"`
	Tasks []string `json:"tasks"`
}

// Send sends a message that has no method here, as JSON.
func (s *Socket) Send(ctx context.Context, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode the message: %w", err)
	}
	if err := s.conn.Write(ctx, b); err != nil {
		return fmt.Errorf("write to the live channel: %w", err)
	}
	return nil
}

// Ping waits for a sign of life from the node. Another goroutine must read meanwhile.
func (s *Socket) Ping(ctx context.Context) error { return s.conn.Ping(ctx) }

// Close ends the connection at once. It may be called repeatedly, and during a read.
func (s *Socket) Close() { s.conn.Close() }
