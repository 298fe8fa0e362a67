package assign

import (
	"encoding/json"
	"time"
)

// Event is one server message of the live channel, as the contract's section 5 has it: {"type":T, T:{…}}.
type Event struct {
	Type string // hello, snapshot, request, work, run, task, node or error
	Body any

	Request *Request // of a request event, for those who wait for it in this process
}

// MarshalJSON writes the message.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"type": e.Type, e.Type: e.Body})
}

// Hello is the first message.
type Hello struct {
	Node       string    `json:"node"`
	User       string    `json:"user"`
	Role       string    `json:"role"`
	ServerTime time.Time `json:"server_time"` // by the database's clock, like all times
}

// RunEvent tells who waits, and who follows the task, about a run.
type RunEvent struct {
	ID         int64    `json:"id,string"`
	Task       string   `json:"task"`
	Phase      string   `json:"phase"` // started, finished, failed or cancelled
	EtaSeconds *float64 `json:"eta_seconds"`
	Candidates *int     `json:"candidates"`
	DurationMS *float64 `json:"duration_ms"`
}

// NodeEvent tells everybody on a node how it is.
type NodeEvent struct {
	State NodeState `json:"state"`
}

// NodeState is how a node is.
type NodeState string

// The states of a node.
const (
	Lagging  NodeState = "lagging"  // it lost its LISTEN connection: results come late
	Live     NodeState = "live"     // it has it back and has caught up
	Draining NodeState = "draining" // it is about to end
)
