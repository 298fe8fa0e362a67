package assign

import "time"

// AlertKind is what is wrong with a task.
type AlertKind string

// The kinds of alerts, most urgent first.
const (
	AlertFailing  AlertKind = "failing"  // its query fails
	AlertUnserved AlertKind = "unserved" // somebody has waited for longer than [AlertWaiting], and no round has looked for them
	AlertLate     AlertKind = "late"     // the deadline of items is over
)

// AlertKinds are all kinds of alerts, most urgent first.
var AlertKinds = []AlertKind{AlertFailing, AlertUnserved, AlertLate}

// AlertWaiting is how long somebody may wait before it is an alert.
const AlertWaiting = 5 * time.Minute

// Alert says that something is wrong with a task.
type Alert struct {
	Kind   AlertKind `json:"kind"`
	Task   string    `json:"task"`
	Since  time.Time `json:"since"`            // the first failure, the longest wait, or the earliest deadline
	Count  int64     `json:"count"`            // how many failures in a row, waiting requests, or late items, as [Task] counts them
	Detail string    `json:"detail,omitempty"` // how the query failed last
}
