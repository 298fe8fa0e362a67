package assign

import "time"

// History counts what happened to tasks, in steps of time.
type History struct {
	From  time.Time     `json:"from"`
	To    time.Time     `json:"to"` // when it was counted; like all times, by the database's clock
	Step  Duration      `json:"step"`
	Tasks []TaskHistory `json:"tasks"` // by name
}

// TaskHistory has a bucket for each step from the beginning to now, also for steps in which nothing happened.
type TaskHistory struct {
	Task    string   `json:"task"`
	Buckets []Bucket `json:"buckets"`

	Codes Codes `json:"codes,omitempty"` // of the work closed in them; nil: there are none, or sums of hours answered, which have none
}

// Codes count work that was closed, by its code. The server's own begin with _.
type Codes map[string]int64

// Add counts n more.
func (c *Codes) Add(code string, n int64) {
	if *c == nil {
		*c = Codes{}
	}
	(*c)[code] += n
}

// Bucket counts one step: from its At until the next bucket's. The last one has not ended.
type Bucket struct {
	At time.Time `json:"at"`

	// The requests made in it, and their outcomes until now. The rest of them still wait.
	Requests  int64  `json:"requests"`
	Given     int64  `json:"given"` // got some or all of what they wanted
	Empty     int64  `json:"empty"` // got nothing
	Failed    int64  `json:"failed"`
	Cancelled int64  `json:"cancelled"`
	WaitMS    *Waits `json:"wait_ms"` // of those that have ended and did not linger; nil if there are none

	// The runs that began in it.
	Runs       int64     `json:"runs"`
	RunsFailed int64     `json:"runs_failed"` // or lost with their node
	RunMS      *RunTimes `json:"run_ms"`      // of those that finished; nil if there are none

	// The work handed out in it, the work closed in it by outcome, and the work held at its end.
	Assigned   int64 `json:"assigned"`
	Completed  int64 `json:"completed"`
	Returned   int64 `json:"returned"`
	Never      int64 `json:"never"`
	FailedWork int64 `json:"failed_work"`
	Expired    int64 `json:"expired"`
	Reassigned int64 `json:"reassigned"`
	Held       int64 `json:"held"`

	// The items that were left at its end, by the task's last list and what was handed out since, and how many came in: how many more are
	// left, and what was handed out and did not come back. Nil if nobody knows: of steps shorter than an hour, and before the first list.
	Left *int64 `json:"left,omitempty"`
	Came *int64 `json:"came,omitempty"`
}

// Waits are percentiles of the time that requests waited, in milliseconds. Each is an observed wait.
type Waits struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	Max float64 `json:"max"`
}

// RunTimes are percentiles of the duration of runs, in milliseconds.
type RunTimes struct {
	P50 float64 `json:"p50"`
	Max float64 `json:"max"`
}

// Returns lists what users did and hold, those who return much first, and the items that many return. Work that a manager took away is not counted,
// because it says nothing about its holder.
type Returns struct {
	From   time.Time       `json:"from"`
	Team   TeamReturns     `json:"team"`
	People []PersonReturns `json:"people"`                  // most returns first, at most 50
	Hidden bool            `json:"people_hidden,omitempty"` // the nodes show no figures of people; People is empty
	Items  []ItemReturns   `json:"items"`                   // items returned twice or more; most people first, at most 50
}

// TeamReturns counts all users together.
type TeamReturns struct {
	Closed   int64    `json:"closed"`
	Returned int64    `json:"returned"`
	Share    *float64 `json:"share"` // returned of closed, from 0 to 1; nil if nothing was closed
}

// PersonReturns counts one user, including the user's instances.
type PersonReturns struct {
	User      string   `json:"user"`
	Assigned  int64    `json:"assigned"` // handed out to the user
	Closed    int64    `json:"closed"`   // closed by the user, or by the end of its lease: the sum of the next five
	Completed int64    `json:"completed"`
	Returned  int64    `json:"returned"`
	Never     int64    `json:"never"`
	Failed    int64    `json:"failed"`
	Expired   int64    `json:"expired"`
	Share     *float64 `json:"share"` // returned of closed, from 0 to 1; nil if nothing was closed

	DonePerHour *float64 `json:"done_per_hour"`        // completed an hour, over the hours since From in which anything was; nil if nothing was
	HandlingP50 *float64 `json:"handling_p50_seconds"` // half of what was completed took no longer, from its handing out; nil if nothing was
	Held        int64    `json:"held"`                 // now, whenever it was handed out

	Codes Codes `json:"codes,omitempty"` // of what is closed
}

// ItemReturns counts one item.
type ItemReturns struct {
	Task    string    `json:"task"`
	Item    string    `json:"item"`
	Returns int64     `json:"returns"`
	People  int64     `json:"people"`          // how many different users returned it
	LastAt  time.Time `json:"last_at"`         // when it was returned last
	State   WorkState `json:"state"`           // of its newest work
	Codes   Codes     `json:"codes,omitempty"` // of its returns
}

// Held is what one user holds of one task, all of the user's instances together.
type Held struct {
	User           string     `json:"user"`
	Task           string     `json:"task"`
	Held           int64      `json:"held"`
	Instances      int64      `json:"instances,omitempty"` // how many instances hold some of it, the user without one included; 0 if no program does
	OldestAt       time.Time  `json:"oldest_at"`           // when the work that is held longest was handed out
	LeaseExpiresAt *time.Time `json:"lease_expires_at"`    // the first lease to run out; nil if there is none

	First int64 `json:"-"` // the lowest id of it
}

// HeldTotal sums up all holders.
type HeldTotal struct {
	Users int64 `json:"users"` // distinct users: a holder of two tasks counts once
	Held  int64 `json:"held"`
}

// HolderFilter selects holders. Empty fields do not filter.
type HolderFilter struct {
	Tasks []string // their present names
	User  string
	Limit int // at most so many rows; 0 selects none

	// Only rows behind a row with these values: the last row of the previous page.
	After time.Time
	First int64
}

// Span selects a part of the past.
type Span struct {
	Tasks []string      // their names; empty for all tasks
	Since *time.Time    // nil for the default
	Step  time.Duration // of a history; 0 for five minutes, or longer if that is too many steps
	Days  bool          // its steps are days, of 23 to 25 hours
	Zone  string        // of these; empty: the database's
}
