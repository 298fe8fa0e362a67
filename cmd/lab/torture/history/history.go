// Package history holds a torture run as its clients saw it: every call with its answer, every message of a socket,
// every fault. Like the checker that judges it, it knows nothing of getwork's code. Both use only the public contract:
// REST, WebSocket, and the tables' documented columns.
//
// Times At, Began and Ended are on the harness's own monotonic clock, since the run's start. Times in answers and
// tables are on the database's clock.
package history

import (
	"encoding/json"
	"time"
)

// Clock is a time since the run's start, on the harness's monotonic clock.
type Clock = time.Duration

// A Who identifies a holder: a user, or an instance of a user's program.
type Who struct {
	User     string `json:"user"`
	Instance string `json:"instance,omitempty"`
}

// Kind is the kind of a call.
type Kind string

// The calls of a run. Each names its subject in fields of [Call].
const (
	Click    Kind = "click"     // POST /tasks/{task}/requests
	Status   Kind = "status"    // GET /requests/{id}
	Cancel   Kind = "cancel"    // DELETE /requests/{id}
	Pipeline Kind = "pipeline"  // GET /pipeline
	Dispose  Kind = "dispose"   // POST /work/{id}/disposition; of POST /work/dispositions, each
	Extend   Kind = "extend"    // POST /work/{id}/extend; of POST /work/extend, each
	Reassign Kind = "reassign"  // POST /work/{id}/reassign
	Release  Kind = "release"   // POST /work/release
	Away     Kind = "away"      // POST /absences
	Back     Kind = "back"      // DELETE /absences/{id}
	Later    Kind = "later"     // POST /work/{id}/later
	Skills   Kind = "skills"    // PUT /people/{name}/skills
	Claim    Kind = "claim"     // POST /tasks/{task}/items/{item}/claim
	Push     Kind = "push"      // POST /tasks/{task}/items
	Redrive  Kind = "redrive"   // POST /tasks/{task}/redrive
	Update   Kind = "update"    // PATCH /tasks/{task}: paused, among others
	LogOut   Kind = "log-out"   // POST /auth/logout
	EndAll   Kind = "end-all"   // DELETE /sessions?user=
	EndToken Kind = "end-token" // DELETE /tokens/{id}
	Block    Kind = "block"     // PATCH /users/{name}: blocked
	Unblock  Kind = "unblock"   // the same
	Rebind   Kind = "rebind"    // POST /users/{name}/rebind
)

// Call is one call and its answer.
type Call struct {
	Kind  Kind   `json:"kind"`
	Who   Who    `json:"who"`            // the caller; a manager's call may concern somebody else's work
	Node  int    `json:"node"`           // the number of the node that was asked
	Began Clock  `json:"began"`          // before the first byte was sent
	Ended Clock  `json:"ended"`          // after the last byte of the answer was read, or the call was given up
	Key   string `json:"key,omitempty"`  // its Idempotency-Key
	By    string `json:"by,omitempty"`   // the credential that it showed, see CredentialRow; empty: none
	Held  Clock  `json:"held,omitempty"` // for how long its answer may be held

	Task    string   `json:"task,omitempty"`
	Item    string   `json:"item,omitempty"`
	Items   []string `json:"items,omitempty"` // pushed, redriven
	Later   []string `json:"later,omitempty"` // the pushed items that must not be handed out before some time
	Request int64    `json:"request,omitempty"`

	NeedsUntil map[string]time.Time `json:"needs_until,omitempty"` // the pushed items that need something, and until when, by the database's clock

	Work    int64    `json:"work,omitempty"`
	To      string   `json:"to,omitempty"` // reassign, claim, release, a manager's pipeline, and changes of rights: the other user, or the token; return: "others"
	Count   int      `json:"count,omitempty"`
	Linger  string   `json:"linger,omitempty"`
	Outcome string   `json:"outcome,omitempty"` // dispose: complete, return, never, fail; release: "dry-run" if it only counts
	After   string   `json:"after,omitempty"`   // return: a duration such as "0s"
	Code    string   `json:"code,omitempty"`    // dispose: the reason, one of the task's
	Skills  []string `json:"skills,omitempty"`  // skills: what the other user can

	Result json.RawMessage `json:"result,omitempty"` // dispose
	Until  *time.Time      `json:"until,omitempty"`  // later; nil: the work is taken up again

	Paused *bool `json:"paused,omitempty"` // update
	Within Clock `json:"within,omitempty"` // the time within which it must be answered if nothing is broken; 0: no limit

	Status int             `json:"status"`          // the answer's; 0: no answer came, so the call may or may not have had its effect
	Type   string          `json:"type,omitempty"`  // a problem's type, such as "/problems/lease-lost"
	Retry  string          `json:"retry,omitempty"` // Retry-After
	Tag    string          `json:"tag,omitempty"`   // ETag
	Match  string          `json:"match,omitempty"` // If-None-Match, as it was sent
	Body   json.RawMessage `json:"body,omitempty"`  // the body of a 2xx
	Error  string          `json:"error,omitempty"` // why no answer came
}

// Socket is one live channel: a WebSocket, or an event stream. It is recorded when it ends.
type Socket struct {
	ID     int64  `json:"id"`
	Who    Who    `json:"who"`
	By     string `json:"by,omitempty"` // the credential that opened it
	Node   int    `json:"node"`
	Stream bool   `json:"stream,omitempty"` // it is a text/event-stream
	Live   Clock  `json:"live"`             // when its first snapshot was read
	Ended  Clock  `json:"ended"`            // when one side closed it, or the run ended
	Status int    `json:"status"`           // close code; -1: it broke, or the harness closed it, or it is a stream
	Slow   bool   `json:"slow,omitempty"`   // its client reads slowly or not at all, on purpose
}

// Told is one message of a socket.
type Told struct {
	Socket int64           `json:"socket"`
	At     Clock           `json:"at"`
	Type   string          `json:"type"` // hello, snapshot, request, work, run, task, node, error
	Body   json.RawMessage `json:"body"` // the value under the type's name
}

// Delivery is one event of a web hook that came to its receiver.
type Delivery struct {
	Message string `json:"message"` // its webhook-id
	Began   Clock  `json:"began"`   // when it had come
	Ended   Clock  `json:"ended"`   // before the first byte of the answer was sent
	Status  int    `json:"status"`  // the answer's; 0: the receiver hung up
}

// Receiver is the number of a fault's node if the receiver of web hooks was broken.
const Receiver = -2

// Fault is something that was broken on purpose between two times, which are equal if the fault was instantaneous.
type Fault struct {
	Kind  string `json:"kind"` // such as kill, freeze, restart, crash, cut, proxy-freeze; clock: the database's clock was set at that moment
	Node  int    `json:"node"` // -1: the database, not a node; -2: the receiver of web hooks
	Began Clock  `json:"began"`
	Ended Clock  `json:"ended"`
	Note  string `json:"note,omitempty"`
}

// Sample is how many executions of a task's ranking query the server ran at one moment. Reading pg_stat_activity takes
// time, in which one execution may end and the next begin. So only executions count that two readings in a row show
// with the same pid and query_start. Previews, explanations and claims do not count.
type Sample struct {
	At         Clock  `json:"at"`
	Task       string `json:"task"`
	Executions int    `json:"executions"`
}

// Tick is the time of the database's clock at some moment between Began and Ended. With at least one tick per second
// the checker knows when, by the harness's clock, a lease ended, and it notices when the clock was set. At least one
// tick lies between two settings of the clock.
type Tick struct {
	Began Clock     `json:"began"`
	Ended Clock     `json:"ended"`
	Now   time.Time `json:"now"`
}

// Ranking is what a task's query always returns: these items, best first, each with one place, and none that a recheck
// would leave out.
type Ranking struct {
	Task  string   `json:"task"`
	Items []string `json:"items"`
	Cut   bool     `json:"cut,omitempty"` // the task may keep fewer items than the query returns
}

// Done says that an item was finished in the world that the task's query reads: from some moment between Began and
// Ended on, the query does not return it any more. The work is completed only after that.
type Done struct {
	Task  string `json:"task"`
	Item  string `json:"item"`
	Began Clock  `json:"began"`
	Ended Clock  `json:"ended"`
}

// Entry is one line of a history; exactly one field is set.
type Entry struct {
	Call   *Call   `json:"call,omitempty"`
	Socket *Socket `json:"socket,omitempty"`
	Told   *Told   `json:"told,omitempty"`
	Fault  *Fault  `json:"fault,omitempty"`
	Sample *Sample `json:"sample,omitempty"`
	Tick   *Tick   `json:"tick,omitempty"`

	Ranking *Ranking `json:"ranking,omitempty"`
	Done    *Done    `json:"done,omitempty"`

	Delivery *Delivery `json:"delivery,omitempty"`
}
