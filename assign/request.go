package assign

import "time"

// State is where a request stands. ARCHITECTURE.md has the page of states and transitions.
type State string

// The states of a request: pending, and five ways to have ended.
const (
	Pending   State = "pending"
	Assigned  State = "assigned"
	Partial   State = "partial"
	None      State = "none"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Reason says why nothing, or less, was handed out.
type Reason string

// The reasons of a request that ended with nothing; one that ended with less has none, or Rules or AtLimit.
const (
	NoMatch Reason = "no_match" // the query gave nothing, the inbox is empty
	AllHeld Reason = "all_held" // all that there is is held or put off
	Rules   Reason = "rules"    // some of it can be handed out, but none, or no more, of it to this user
	AtLimit Reason = "at_limit" // the user holds as much of the task as he may
	Paused  Reason = "paused"   // a manager paused the task
)

// Request is one holder's "get work" on one task, as the contract shows it.
type Request struct {
	ID          int64      `json:"id,string"`
	Task        string     `json:"task"`
	User        string     `json:"user"`
	Instance    string     `json:"instance,omitempty"`
	Wanted      int        `json:"wanted"`
	Requested   int        `json:"requested"`
	Assigned    int        `json:"assigned"`
	State       State      `json:"state"`
	Reason      *Reason    `json:"reason"`
	Error       *string    `json:"error"`
	Lease       *Duration  `json:"lease"`
	CreatedAt   time.Time  `json:"created_at"`
	LingerUntil *time.Time `json:"linger_until"`
	CompletedAt *time.Time `json:"completed_at"`
	EtaSeconds  *float64   `json:"eta_seconds"` // about how long it will take, by the last runs; nil: not known, or it has ended
	Position    *int64     `json:"position"`    // its place among those who wait on the task, from 1; nil: it has ended, or a thousand are before it
	Work        []Work     `json:"work"`

	Age    time.Duration `json:"-"` // by the database's clock, when it was read
	Left   bool          `json:"-"` // a round has read it, and left it lingering
	TaskID int64         `json:"-"`
}

// Holder is who asked.
func (r *Request) Holder() Holder { return Holder{r.User, r.Instance} }

// Click is one holder's wish for work.
type Click struct {
	Holder   Holder
	Groups   []string  // that the user is in
	Anything bool      // he needs no group: a manager
	Count    int       // 1 … the task's max_request
	Linger   Duration  // while there is nothing, wait so long for something; at most 24 h
	Lease    *Duration // how long to hold the work, where the task does not say; 1 s to 24 h; nil: until it is let go of
	Key      string    // the Idempotency-Key; empty: none
}

// MaxLinger is the longest that a request may linger.
const MaxLinger = Duration(24 * time.Hour)

// Check says what is wrong with the click on a task that hands out so many at a time: a [Refusal] that is [Invalid].
func (c Click) Check(maxRequest int) error {
	if err := CheckUser(c.Holder.User); err != nil {
		return err
	}
	if err := CheckInstance(c.Holder.Instance); err != nil {
		return err
	}
	if c.Count < 1 || c.Count > maxRequest {
		return RefuseField("count", "count is from 1 to %d for this task, not %d", maxRequest, c.Count)
	}
	if c.Linger < 0 || c.Linger > MaxLinger {
		return RefuseField("linger", `linger is from "0s" to "24h", not %q`, c.Linger.String())
	}
	if c.Lease != nil && (*c.Lease < Duration(time.Second) || *c.Lease > MaxLinger) {
		return RefuseField("lease", `lease is from "1s" to "24h", not %q`, c.Lease.String())
	}
	if len(c.Key) > 255 {
		return RefuseField("Idempotency-Key", "an Idempotency-Key has at most 255 characters; this one has %d", len(c.Key))
	}
	return nil
}
