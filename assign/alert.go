package assign

import "time"

// AlertKind is what is wrong with a task.
type AlertKind string

// The kinds of alerts, most urgent first.
const (
	AlertFailing  AlertKind = "failing"  // its query fails
	AlertUnserved AlertKind = "unserved" // somebody has waited for longer than [Settings.AlertWaiting], and no round has looked for them
	AlertLate     AlertKind = "late"     // the deadline of items is over
	AlertBacklog  AlertKind = "backlog"  // the oldest item that can be handed out is older than [Settings.AlertBacklogAge]
)

// AlertKinds are all kinds of alerts, most urgent first.
var AlertKinds = []AlertKind{AlertFailing, AlertUnserved, AlertLate, AlertBacklog}

// Alert says that something is wrong with a task.
type Alert struct {
	Kind   AlertKind `json:"kind"`
	Task   string    `json:"task"`
	Since  time.Time `json:"since"`            // the first failure, the longest wait, the earliest deadline, or since when the oldest item has been there
	Count  int64     `json:"count"`            // how many failures in a row, waiting requests, late items, or items of the backlog, as [Task] counts them
	Detail string    `json:"detail,omitempty"` // how the query failed last

	TaskID int64 `json:"-"`
}
