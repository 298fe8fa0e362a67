package checker

import (
	"encoding/json"
	"time"
)

// The judged parts of requests, work and other answers, as the contract defines them.

type requestBody struct {
	ID          int64      `json:"id,string"`
	Task        string     `json:"task"`
	User        string     `json:"user"`
	Instance    string     `json:"instance"`
	Wanted      int        `json:"wanted"`
	Requested   int        `json:"requested"`
	Assigned    int        `json:"assigned"`
	State       string     `json:"state"`
	Reason      *string    `json:"reason"`
	Error       *string    `json:"error"`
	CreatedAt   time.Time  `json:"created_at"`
	CompletedAt *time.Time `json:"completed_at"`
	RankedAt    *time.Time `json:"ranked_at"`
	Stale       bool       `json:"stale"`
	Work        []workBody `json:"work"`
}

func (r *requestBody) pending() bool { return r.State == "pending" }

type workBody struct {
	ID             int64      `json:"id,string"`
	Task           string     `json:"task"`
	Item           string     `json:"item"`
	User           string     `json:"user"`
	Instance       string     `json:"instance"`
	Slot           int        `json:"slot"`
	AssignedAt     time.Time  `json:"assigned_at"`
	LeaseExpiresAt *time.Time `json:"lease_expires_at"`
	Attempt        int        `json:"attempt"`
	State          string     `json:"state"`
	ClosedAt       *time.Time `json:"closed_at"`
	Note           *string    `json:"note"`
	Code           *string    `json:"code"`
	LaterUntil     *time.Time `json:"later_until"`
	Deadline       *time.Time `json:"deadline"`
}

func (w *workBody) held() bool { return w.State == "held" }

// pipelineBody is a pipeline, or a socket's snapshot.
type pipelineBody struct {
	Work     []workBody    `json:"work"`
	Requests []requestBody `json:"requests"`
}

// countBody is the answer to a release, a redrive, a push or an update.
type countBody struct {
	Count    int    `json:"count"`
	Token    string `json:"token"` // of a dry run
	Accepted int    `json:"accepted"`
	Version  int    `json:"version"`
}

// decode reads a body. It returns false if the body is not of that kind.
func decode(body json.RawMessage, into any) bool {
	return len(body) > 0 && json.Unmarshal(body, into) == nil
}
