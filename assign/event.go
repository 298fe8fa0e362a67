package assign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Event is one server message of the live channel: {"type":T, T:{…}}.
type Event struct {
	Type string // hello, snapshot, request, work, absence, run, task, tasks, node or error

	// Body is what follows the type. Its Go type decides who may read it: Of and Withheld know *Request, *Work, *Task, Pipeline
	// and RunEvent, and pass anything else, such as a Task by value, to everybody as it is.
	Body any

	Request *Request // the request of a request event, for callers in this process that wait for it

	once *encoded // encoding shared by several receivers; nil if each encodes the event itself
}

// encoded is the message of a shared event.
type encoded struct {
	sync.Once
	message []byte
	err     error

	withhold sync.Once
	withheld Event // see Withheld
}

// Shared returns the event for several receivers: the first one to write it encodes it for all.
func (e Event) Shared() Event {
	if e.once == nil {
		e.once = &encoded{}
	}
	return e
}

// AppendMessage appends the event's message as it goes over the wire.
func (e Event) AppendMessage(b []byte) ([]byte, error) {
	if e.once == nil {
		return e.encode(b)
	}
	message, err := e.message()
	return append(b, message...), err
}

// message returns a shared event's message.
func (e Event) message() ([]byte, error) {
	e.once.Do(func() { e.once.message, e.once.err = e.encode(nil) })
	return e.once.message, e.once.err
}

// MarshalJSON writes the message.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendMessage(nil) }

func (e Event) encode(b []byte) ([]byte, error) {
	b = append(b, `{"type":"`...)
	b = append(b, e.Type...)
	b = append(b, `","`...)
	b = append(b, e.Type...)
	b = append(b, `":`...)
	switch body := e.Body.(type) {
	case *Request:
		b = body.AppendJSON(b)
	case *Work:
		b = body.AppendJSON(b)
	case Pipeline:
		b = body.AppendJSON(b)
	default:
		rest, err := json.Marshal(body)
		if err != nil {
			return b, fmt.Errorf("encode a %s event: %w", e.Type, err)
		}
		b = append(b, rest...)
	}
	return append(b, '}'), nil
}

// Of returns the event as a caller whose token is for these tasks alone may see it; false: it is not for that caller. Events of
// tasks pass, because a live channel with such a token can follow only these tasks.
func (e Event) Of(tasks []string) (Event, bool) {
	switch body := e.Body.(type) {
	case Pipeline:
		e.Body, e.once = body.Of(tasks), nil
	case *Request:
		return e, slices.Contains(tasks, body.Task)
	case *Work:
		return e, slices.Contains(tasks, body.Task)
	case RunEvent:
		return e, slices.Contains(tasks, body.Task)
	case *RunEvent:
		return e, slices.Contains(tasks, body.Task)
	}
	return e, true
}

// Hello is the first message of a live channel.
type Hello struct {
	Node       string    `json:"node"`
	User       string    `json:"user"`
	Role       string    `json:"role"`
	ServerTime time.Time `json:"server_time"` // by the database's clock, like all times
}

// RunEvent reports a run to the users who wait for it or follow its task.
type RunEvent struct {
	ID         int64    `json:"id,string"`
	Task       string   `json:"task"`
	Phase      string   `json:"phase"`       // started, finished, failed or cancelled
	EtaSeconds *float64 `json:"eta_seconds"` // when it starts: about how long it will take, by the last runs; nil if not known
	Candidates *int     `json:"candidates"`
	DurationMS *float64 `json:"duration_ms"`
}

// NodeEvent reports a node's state to everybody connected to it.
type NodeEvent struct {
	State NodeState `json:"state"`
}

// NodeState is the state of a node, as its clients see it.
type NodeState string

// The states of a node.
const (
	Lagging  NodeState = "lagging"  // it lost its LISTEN connection: results come late
	Live     NodeState = "live"     // its LISTEN connection is back, and it has caught up
	Draining NodeState = "draining" // it is shutting down
)

// Same reports whether two events have the same message. Both must be [Event.Shared].
func (e Event) Same(other Event) bool {
	a, _ := e.message()
	b, err := other.message()
	return err == nil && bytes.Equal(a, b)
}
