// Package history holds what happened in a torture run, as its clients saw it: every call with its answer, every message
// that a socket brought, every fault. It knows nothing of getwork's code, nor does the checker that judges it: both speak
// the public contract only, REST, WebSocket, and the tables' documented columns.
//
// Times At, Began and Ended are the harness's own monotonic clock, since the run's start. Times in answers and tables are the
// database's clock.
package history

import (
	"encoding/json"
	"time"
)

// Clock is time since the run's start, on the harness's monotonic clock.
type Clock = time.Duration

// Who is a holder: a user, or a program's instance of his.
type Who struct {
	User     string `json:"user"`
	Instance string `json:"instance,omitempty"`
}

// Kind is what a call asks for.
type Kind string

// The calls that a run makes. Each names what it is about in the fields of [Call].
const (
	Click    Kind = "click"    // POST /tasks/{task}/requests
	Status   Kind = "status"   // GET /requests/{id}
	Cancel   Kind = "cancel"   // DELETE /requests/{id}
	Pipeline Kind = "pipeline" // GET /pipeline
	Dispose  Kind = "dispose"  // POST /work/{id}/disposition
	Extend   Kind = "extend"   // POST /work/{id}/extend
	Reassign Kind = "reassign" // POST /work/{id}/reassign
	Release  Kind = "release"  // POST /work/release
	Claim    Kind = "claim"    // POST /tasks/{task}/items/{item}/claim
	Push     Kind = "push"     // POST /tasks/{task}/items
	Redrive  Kind = "redrive"  // POST /tasks/{task}/redrive
	Update   Kind = "update"   // PATCH /tasks/{task}: paused, among others
)

// Call is one call and its answer.
type Call struct {
	Kind  Kind   `json:"kind"`
	Who   Who    `json:"who"`           // who called; a manager's call may be about somebody else's
	Node  int    `json:"node"`          // which node was asked, by its number
	Began Clock  `json:"began"`         // before the first byte was sent
	Ended Clock  `json:"ended"`         // after the last byte of the answer was read, or the call was given up
	Key   string `json:"key,omitempty"` // its Idempotency-Key

	Task    string   `json:"task,omitempty"`
	Item    string   `json:"item,omitempty"`
	Items   []string `json:"items,omitempty"` // pushed, redriven
	Later   []string `json:"later,omitempty"` // of those pushed: not to be handed out before some time
	Request int64    `json:"request,omitempty"`
	Work    int64    `json:"work,omitempty"`
	To      string   `json:"to,omitempty"` // reassign, release, and a manager's pipeline: the user; return: "others"
	Count   int      `json:"count,omitempty"`
	Linger  string   `json:"linger,omitempty"`
	Outcome string   `json:"outcome,omitempty"` // dispose: complete, return, never, fail; release: "dry-run" if it only counts
	After   string   `json:"after,omitempty"`   // return: a duration such as "0s"
	Paused  *bool    `json:"paused,omitempty"`  // update
	Within  Clock    `json:"within,omitempty"`  // it is to be answered by then, where nothing is broken; 0: nobody has promised

	Status int             `json:"status"`          // of the answer; 0: there was none, so it may or may not have happened
	Type   string          `json:"type,omitempty"`  // of a problem, such as "/problems/lease-lost"
	Retry  string          `json:"retry,omitempty"` // Retry-After
	Tag    string          `json:"tag,omitempty"`   // ETag
	Match  string          `json:"match,omitempty"` // If-None-Match, as it was sent
	Body   json.RawMessage `json:"body,omitempty"`  // of a 2xx
	Error  string          `json:"error,omitempty"` // why there was no answer
}

// Socket is the life of one live channel: a WebSocket, or an event stream. It is recorded when it ends.
type Socket struct {
	ID     int64 `json:"id"`
	Who    Who   `json:"who"`
	Node   int   `json:"node"`
	Stream bool  `json:"stream,omitempty"` // it is text/event-stream
	Live   Clock `json:"live"`             // its first snapshot was read
	Ended  Clock `json:"ended"`            // it was closed, by whomsoever, or the run ended
	Status int   `json:"status"`           // close code; -1: it broke, or we closed it, or it is a stream
	Slow   bool  `json:"slow,omitempty"`   // its client reads slowly, or not at all, on purpose
}

// Told is one message of a socket.
type Told struct {
	Socket int64           `json:"socket"`
	At     Clock           `json:"at"`
	Type   string          `json:"type"` // hello, snapshot, request, work, run, task, node, error
	Body   json.RawMessage `json:"body"` // what stands under the type's name
}

// Fault is something that was broken on purpose, from then to then; one that is instantaneous has Ended = Began.
type Fault struct {
	Kind  string `json:"kind"` // such as kill, freeze, restart, crash, cut, proxy-freeze; clock: the database's was set at that moment
	Node  int    `json:"node"` // -1: none of the nodes, the database
	Began Clock  `json:"began"`
	Ended Clock  `json:"ended"`
	Note  string `json:"note,omitempty"`
}

// Sample is how many executions of a task's ranking query were in the server at one moment. To read pg_stat_activity takes
// time, in which one may end and the next begin: only those count that two readings, one after the other, both show with
// the same pid and query_start. Previews, explanations and claims are no executions.
type Sample struct {
	At         Clock  `json:"at"`
	Task       string `json:"task"`
	Executions int    `json:"executions"`
}

// Tick is what the database's clock said at some moment between Began and Ended. With one or more in a second the checker
// can tell when, by the harness's clock, a lease ended; a clock that was set is seen by them, too. Between two times at which it
// was set on purpose there is one at least.
type Tick struct {
	Began Clock     `json:"began"`
	Ended Clock     `json:"ended"`
	Now   time.Time `json:"now"`
}

// Ranking is what a task's query returns at any time: these items, best first, each with one place, and none that a recheck
// would leave out.
type Ranking struct {
	Task  string   `json:"task"`
	Items []string `json:"items"`
	Cut   bool     `json:"cut,omitempty"` // the task keeps fewer than there may be
}

// Done is that an item was finished in the world that the task's query looks at: from a moment between Began and Ended on it is
// not returned any more. Whoever does so completes the work after that.
type Done struct {
	Task  string `json:"task"`
	Item  string `json:"item"`
	Began Clock  `json:"began"`
	Ended Clock  `json:"ended"`
}

// Entry is one line of a recorded history; exactly one field is set.
type Entry struct {
	Call   *Call   `json:"call,omitempty"`
	Socket *Socket `json:"socket,omitempty"`
	Told   *Told   `json:"told,omitempty"`
	Fault  *Fault  `json:"fault,omitempty"`
	Sample *Sample `json:"sample,omitempty"`
	Tick   *Tick   `json:"tick,omitempty"`

	Ranking *Ranking `json:"ranking,omitempty"`
	Done    *Done    `json:"done,omitempty"`
}
