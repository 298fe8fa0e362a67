package assign

import (
	"fmt"
	"time"
)

// State is the state of a request. ARCHITECTURE.md lists all states and transitions.
type State string

// The states of a request: pending, and five ways to have ended.
const (
	Pending   State = "pending"
	Assigned  State = "assigned"  // it got all that it wanted
	Partial   State = "partial"   // it got less
	None      State = "none"      // it got nothing, and has a Reason
	Failed    State = "failed"    // the task's query or recheck failed, and it has an Error
	Cancelled State = "cancelled" // by its owner or a manager, or because its task, its program's lease or its user's log-in ended
)

// Reason says why a request got nothing, or less than it wanted.
type Reason string

// The reasons of a request that ended with nothing. A partial request has Rules, AtLimit or no reason.
const (
	NoMatch Reason = "no_match" // the query returned nothing, or the inbox is empty
	AllHeld Reason = "all_held" // every item is held or put off
	Rules   Reason = "rules"    // some items can be handed out, but none, or no more, to this user
	AtLimit Reason = "at_limit" // the user holds as much as a limit allows: the task's, or the one over all tasks
	Paused  Reason = "paused"   // a manager paused the task
	Away    Reason = "away"     // the user is away
)

// Request is one holder's "get work" on one task, as the API shows it.
type Request struct {
	ID          int64      `json:"id,string"`
	Task        string     `json:"task"`
	User        string     `json:"user"`
	Instance    string     `json:"instance,omitempty"`
	Wanted      int        `json:"wanted"`    // how many items were asked for; never changes
	Requested   int        `json:"requested"` // the same as Wanted while it is pending, and as Assigned afterwards
	Assigned    int        `json:"assigned"`  // how many items it got; 0 while it is pending
	State       State      `json:"state"`
	Reason      *Reason    `json:"reason"` // nil while it is pending
	Error       *string    `json:"error"`  // how the query or the recheck failed
	Lease       *Duration  `json:"lease"`  // for how long to hold the work if the task has no lease; nil: it names none
	CreatedAt   time.Time  `json:"created_at"`
	LingerUntil *time.Time `json:"linger_until"` // nil: it does not linger
	CompletedAt *time.Time `json:"completed_at"` // nil while it is pending
	RankedAt    *time.Time `json:"ranked_at"`    // the ranking of its items saw what was committed before; nil if it got none, or pushed ones
	Stale       bool       `json:"stale"`        // its items are from a shelf that had expired, while its refresh ran
	EtaSeconds  *float64   `json:"eta_seconds"`  // about how long it will take, by the last runs; nil if not known, or if it has ended
	Position    *int64     `json:"position"`     // among the task's waiting requests, from 1; nil if it has ended, or if a thousand are before it
	Work        []Work     `json:"work"`         // what it got, best first, also if it is closed by now

	Tasks  []string `json:"tasks,omitempty"`  // that it could be served from, in the order in which they are asked; nil: it is for one task
	Asking *string  `json:"asking,omitempty"` // the one whose query is to run for it now

	Age    time.Duration `json:"-"` // at the time of reading, by the database's clock
	Left   bool          `json:"-"` // a round has read it, and left it lingering
	TaskID int64         `json:"-"`
	LineID int64         `json:"-"` // of the task whose line it waits in; 0: of none
}

// Holder returns the holder who asked.
func (r *Request) Holder() Holder { return Holder{r.User, r.Instance} }

// Click is one holder's call for work.
type Click struct {
	Holder   Holder
	Groups   []string  // the user's groups
	Anything bool      // needs no group: the user is a manager
	Program  bool      // as in [Who]
	Count    int       // from 1 to the task's max_request
	Linger   Duration  // how long to wait if there is nothing; at most 24 h
	Lease    *Duration // how long to hold the work if the task has no lease; 1 s to 24 h; nil for no lease
	Key      string    // the Idempotency-Key; empty for none
	Picks    bool      // may ask by name for what people get only as their next

	Tasks  []string // of a click over several tasks: their names, or "*" for all
	Within []string // of a click over all: only those; nil: all that the user may see

	Credential string    // what the user came in with; empty under --auth dev
	ValidUntil time.Time // when that ends by itself; zero: it does not

	Traceparent string // of the click's span, if that is sampled; empty for none
}

// CheckTasks returns a [Refusal] that is [Invalid] if tasks can't be asked for at once.
func CheckTasks(names []string) error {
	if len(names) == 0 || len(names) > 100 {
		return RefuseField("tasks", `tasks has 1 to 100 names, or is ["*"] for all tasks that you may see; this one has %d`, len(names))
	}
	seen := map[string]bool{}
	for _, name := range names {
		if name == "*" && len(names) > 1 {
			return RefuseField("tasks", `"*" stands for all tasks, and alone`)
		}
		if name != "*" && !IsTaskName(name) {
			return NoTask(name)
		}
		if seen[name] {
			return RefuseField("tasks", "task %q is named twice", name)
		}
		seen[name] = true
	}
	return nil
}

// NotByName says that people don't get work of a task by its name, and what to do.
func NotByName(task string) string {
	return fmt.Sprintf(`work of %q is handed out as what comes next, and not by name; ask for all your tasks: getwork get, the page's "Get next work", or POST /api/v1/requests with "tasks": ["*"]`, task)
}

// MaxLinger is the longest that a request may linger.
const MaxLinger = Duration(24 * time.Hour)

// Check returns a [Refusal] that is [Invalid] if the click is wrong for a task that hands out at most maxRequest at a time.
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
