package assign

import "time"

// Task is a kind of work, as the contract shows it.
type Task struct {
	Settings
	Version int   `json:"version"`
	Waiting int64 `json:"waiting"` // pending requests
	Held    int64 `json:"held"`
	Shelf   int64 `json:"shelf"` // candidates that can be handed out without a run, 0 when it is not fresh; of an inbox, items that are ready, counted up to 100000

	RunningSince *time.Time `json:"running_since"` // when the run under way began; nil: none is
	UsualSeconds *float64   `json:"usual_seconds"` // how long a run of the query in force takes, the median of the last; nil: none has finished

	ID     int64    `json:"-"`
	Newest [2]int64 `json:"-"` // the request that began to wait last of those that do, and the work handed out last: others may be as many
}

// NoTask is the refusal, [NotFound], of a task that does not exist, and of one that is not open to the caller.
func NoTask(name string) error {
	return Refuse(NotFound, "no task %q; GET /api/v1/tasks lists those that there are", name)
}

// Version is a task as it was after one of its changes.
type Version struct {
	Settings
	Version   int       `json:"version"` // counts from 1
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`

	Conflicts []string `json:"-" yaml:"-"` // ConflictsWith without tasks that were deleted since
}

// Run is one execution of a task's ranking query, as the history shows it.
type Run struct {
	ID         int64      `json:"id,string"`
	Version    int        `json:"version"`
	Node       string     `json:"node"`
	State      string     `json:"state"` // running, finished, failed, cancelled, lost
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Error      *string    `json:"error"`
	Given      *int64     `json:"given"`       // rows that the query gave
	Blocked    *int64     `json:"blocked"`     // of them held, put off or never
	PassedOver *int64     `json:"passed_over"` // of them without a usable item
	Candidates *int       `json:"candidates"`  // what remained, at most max_candidates
	Cut        *bool      `json:"cut"`         // more than that remained
	DurationMS *float64   `json:"duration_ms"`

	TaskID int64 `json:"-"`
}
