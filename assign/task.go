package assign

import "time"

// Task is a kind of work, as the API shows it.
type Task struct {
	Settings
	Version int   `json:"version"` // of the settings, from 1; pausing alone makes none
	Waiting int64 `json:"waiting"` // pending requests
	Held    int64 `json:"held"`
	Shelf   int64 `json:"shelf"` // candidates that can be handed out without a run, 0 if the shelf is not fresh; of an inbox, ready items; counted up to 100000

	Backlog *Backlog `json:"backlog"` // nil until a run has finished

	Pace

	Late         int64      `json:"late"`          // what is held, on the shelf or in the inbox although its deadline is over; of the last two up to 1000 are counted
	NextDeadline *time.Time `json:"next_deadline"` // the earliest of the others; nil: none has one

	ItemsNobody int64 `json:"items_nobody,omitempty"` // what needs groups or skills that nobody known has, as of the last run; in an inbox, of what is ready

	RunningSince *time.Time `json:"running_since"` // when the current run began; nil if there is none
	UsualSeconds *float64   `json:"usual_seconds"` // the median duration of the last runs of the query in force; nil if none has finished

	Failures  int     `json:"failures"`             // runs in a row that failed by the query's own fault; 0: the last one worked
	LastError *string `json:"last_error,omitempty"` // how the last of them failed, for those who may read queries

	ID     int64    `json:"-"`
	Newest [2]int64 `json:"-"` // ids of the newest waiting request and of the newest held work: they show a change when the counts are equal
}

// Backlog is how much there is to do, as the last run found it, whatever was handed out since. An inbox's is what is ready in it now.
type Backlog struct {
	Found  int64      `json:"found"`  // items
	Free   int64      `json:"free"`   // those of them that were not held, put off or never
	AsOf   *time.Time `json:"as_of"`  // what was committed before counts; nil: now
	Oldest *time.Time `json:"oldest"` // the earliest since of those that were free; nil if the query returns none
}

// Ready notes how many items of an inbox are ready.
func (t *Task) Ready(n int64) {
	t.Shelf, t.Backlog = n, &Backlog{Found: n, Free: n}
}

// NoTask returns the refusal, [NotFound], of a task that does not exist or is not open to the caller.
func NoTask(name string) error {
	return Refuse(NotFound, "no task %q; GET /api/v1/tasks lists all tasks", name)
}

// Version is a task as it was after one of its changes.
type Version struct {
	Settings
	Version   int       `json:"version"` // counts from 1
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`

	Conflicts []string `json:"-" yaml:"-"` // ConflictsWith without tasks that have been deleted since
}

// TaskChange is an entry of a task's log: that its settings were changed, or that it was paused or resumed.
type TaskChange struct {
	Version int       `json:"version"` // the one that the change made; of a pause, the one in force
	Act     string    `json:"act"`     // created, changed, paused or resumed
	At      time.Time `json:"at"`
	By      string    `json:"by"`

	N int `json:"-"` // counts a task's pauses from 1; 0 for a version
}

// Key is where the entry stands in the log; later ones have higher keys.
func (c *TaskChange) Key() int64 { return int64(c.Version)<<32 | int64(c.N) }

// Run is one execution of a task's ranking query, as the history shows it.
type Run struct {
	ID         int64      `json:"id,string"`
	Version    int        `json:"version"` // the task's, whose query ran
	Node       string     `json:"node"`
	State      string     `json:"state"` // running, finished, failed, cancelled, lost
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Error      *string    `json:"error"`
	Given      *int64     `json:"given"`            // rows that the query returned; nil, like the next five, unless the run finished
	Blocked    *int64     `json:"blocked"`          // those of them that are held, put off or never
	PassedOver *int64     `json:"passed_over"`      // those of them without a usable item
	LeftOut    *int64     `json:"details_left_out"` // items that are handed out without their details, which are beyond the limits
	Candidates *int       `json:"candidates"`       // the remaining rows, at most max_candidates
	Cut        *bool      `json:"cut"`              // whether there were more than max_candidates
	DurationMS *float64   `json:"duration_ms"`

	TaskID int64 `json:"-"`
}
