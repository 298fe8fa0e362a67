package assign

import "time"

// Day is what became of one user's work lately, and what is left to do.
type Day struct {
	Done  int64   `json:"done"`  // completed since then
	Ended []Ended `json:"ended"` // newest first, at most 200

	Left  int64 `json:"left"`  // free items of the tasks that are open to the user, as each task's backlog says
	Late  int64 `json:"late"`  // of these tasks, whoever has it
	Tasks int64 `json:"tasks"` // how many these are
}

// Ended is work that its holder no longer has.
type Ended struct {
	Work  int64     `json:"work,string"`
	Task  string    `json:"task"`
	Item  string    `json:"item"`
	Title string    `json:"title,omitempty"` // by the task's display; empty: it names none
	At    time.Time `json:"at"`
	State WorkState `json:"state"` // what became of it
}

// MaxDay is how far back a [Day] reaches at most, and UsualDay how far if nobody says.
const (
	MaxDay   = 48 * time.Hour
	UsualDay = 24 * time.Hour
)

// Count adds a task to what is left.
func (d *Day) Count(t *Task) {
	d.Tasks++
	d.Late += t.Late
	if t.Backlog != nil {
		d.Left += t.Backlog.Free
	}
}
