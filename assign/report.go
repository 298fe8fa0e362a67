package assign

import "time"

// History is what happened to tasks, counted in stretches of time.
type History struct {
	From  time.Time     `json:"from"`
	To    time.Time     `json:"to"` // when it was counted, by the database's clock, as all times are
	Step  Duration      `json:"step"`
	Tasks []TaskHistory `json:"tasks"` // by name
}

// TaskHistory has a bucket for each step from the beginning to now, also where nothing happened.
type TaskHistory struct {
	Task    string   `json:"task"`
	Buckets []Bucket `json:"buckets"`
}

// Bucket is what happened in one step: from At until the next one's. The last goes on.
type Bucket struct {
	At time.Time `json:"at"`

	// The requests made in it, and what has become of them since; what is left of them waits.
	Requests  int64  `json:"requests"`
	Given     int64  `json:"given"` // got all that they wanted, or less
	Empty     int64  `json:"empty"` // got nothing
	Failed    int64  `json:"failed"`
	Cancelled int64  `json:"cancelled"`
	WaitMS    *Waits `json:"wait_ms"` // of those that have ended and were not to linger; nil: there are none

	// The runs that began in it.
	Runs       int64     `json:"runs"`
	RunsFailed int64     `json:"runs_failed"` // or lost with their node
	RunMS      *RunTimes `json:"run_ms"`      // of those that finished; nil: there are none

	// The work handed out in it, what was let go of in it, and how it was; and what was held at its end.
	Assigned   int64 `json:"assigned"`
	Completed  int64 `json:"completed"`
	Returned   int64 `json:"returned"`
	Never      int64 `json:"never"`
	FailedWork int64 `json:"failed_work"`
	Expired    int64 `json:"expired"`
	Reassigned int64 `json:"reassigned"`
	Held       int64 `json:"held"`
}

// Waits tell how long requests waited, in milliseconds. Each is a wait that there was.
type Waits struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	Max float64 `json:"max"`
}

// RunTimes tell how long runs took, in milliseconds.
type RunTimes struct {
	P50 float64 `json:"p50"`
	Max float64 `json:"max"`
}

// Returns tell who gives back much, and which items many give back. What a manager took away is not counted: it says
// nothing about who held it.
type Returns struct {
	From   time.Time       `json:"from"`
	Team   TeamReturns     `json:"team"`
	People []PersonReturns `json:"people"` // who returned most first, at most 50
	Items  []ItemReturns   `json:"items"`  // those returned twice or more; what most people returned first, at most 50
}

// TeamReturns are those of all people together.
type TeamReturns struct {
	Closed   int64    `json:"closed"`
	Returned int64    `json:"returned"`
	Share    *float64 `json:"share"` // of what was closed; nil: nothing was
}

// PersonReturns are one user's, his instances' included.
type PersonReturns struct {
	User      string   `json:"user"`
	Assigned  int64    `json:"assigned"` // handed out to him
	Closed    int64    `json:"closed"`   // let go of by him, or its lease ran out: the sum of the next five
	Completed int64    `json:"completed"`
	Returned  int64    `json:"returned"`
	Never     int64    `json:"never"`
	Failed    int64    `json:"failed"`
	Expired   int64    `json:"expired"`
	Share     *float64 `json:"share"` // of what was closed that was returned; nil: nothing was closed
}

// ItemReturns are one item's.
type ItemReturns struct {
	Task    string    `json:"task"`
	Item    string    `json:"item"`
	Returns int64     `json:"returns"`
	People  int64     `json:"people"`  // how many different users returned it
	LastAt  time.Time `json:"last_at"` // when it was returned last
	State   WorkState `json:"state"`   // of its newest work
}

// Held is what one user holds of one task, all of his instances together.
type Held struct {
	User           string     `json:"user"`
	Task           string     `json:"task"`
	Held           int64      `json:"held"`
	Instances      int64      `json:"instances,omitempty"` // how many of his hold some of it, he himself being one; 0: only he himself
	OldestAt       time.Time  `json:"oldest_at"`           // when he got what he has held longest
	LeaseExpiresAt *time.Time `json:"lease_expires_at"`    // the first lease to run out; nil: there is none

	First int64 `json:"-"` // the lowest id of it
}

// HeldTotal is what all holders hold together.
type HeldTotal struct {
	Users int64 `json:"users"` // different ones: who holds work of two tasks is one
	Held  int64 `json:"held"`
}

// HolderFilter says whose work is asked for. Empty fields do not filter.
type HolderFilter struct {
	Tasks []string // the names that they have now
	User  string
	Limit int

	// Only what comes behind a row with these: the last one of the page before.
	After time.Time
	First int64
}

// Span says which past is asked for.
type Span struct {
	Tasks []string      // their names; none: all that there are
	Since *time.Time    // nil: as long as is usual
	Step  time.Duration // of a history
}
