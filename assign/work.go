package assign

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// WorkState is the state of work. ARCHITECTURE.md lists all states and transitions.
type WorkState string

// The states of work: held, and six ways to be closed.
const (
	WorkHeld       WorkState = "held"
	WorkCompleted  WorkState = "completed"
	WorkReturned   WorkState = "returned"
	WorkNever      WorkState = "never"
	WorkFailed     WorkState = "failed"
	WorkExpired    WorkState = "expired"
	WorkReassigned WorkState = "reassigned"
)

var workStates = []WorkState{WorkHeld, WorkCompleted, WorkReturned, WorkNever, WorkFailed, WorkExpired, WorkReassigned}

// Work is one item of one task held by one holder, as the API shows it.
type Work struct {
	ID             int64           `json:"id,string"`
	Task           string          `json:"task"`
	Item           string          `json:"item"`
	User           string          `json:"user"`
	Instance       string          `json:"instance,omitempty"`
	Slot           int             `json:"slot"`    // which of the item's places, from 1
	Details        json.RawMessage `json:"details"` // what the query, or the push, said of the item
	AssignedAt     time.Time       `json:"assigned_at"`
	LeaseExpiresAt *time.Time      `json:"lease_expires_at"` // nil: it is held until somebody closes it
	Attempt        int             `json:"attempt"`          // from 1; one more after an attempt that failed or expired
	State          WorkState       `json:"state"`
	ClosedAt       *time.Time      `json:"closed_at"`    // nil while it is held
	AvailableAt    *time.Time      `json:"available_at"` // when the item may be handed out again; of redriven work, when that was; else nil
	Note           *string         `json:"note"`

	Code       *string         `json:"code,omitempty"`        // why it was let go of: of an outcome of its task, or one of the server's, which begins with _
	Result     json.RawMessage `json:"result,omitempty"`      // what it came to
	LaterUntil *time.Time      `json:"later_until,omitempty"` // its holder has put it aside until then

	Deadline  *time.Time `json:"deadline,omitempty"`  // the item's; nil if it has none
	Lease     *Duration  `json:"lease,omitempty"`     // how long an extension lasts
	ClosedBy  *string    `json:"closed_by,omitempty"` // its holder, or a manager; nil if its lease ran out
	Error     *string    `json:"error,omitempty"`     // how the attempt failed
	ToOthers  bool       `json:"to_others,omitempty"` // returned, and not to be offered to the same user again
	Exhausted bool       `json:"exhausted,omitempty"` // never, because the last of its attempts failed or ran out
	Expiring  bool       `json:"expiring,omitempty"`  // at most a fifth of its lease is left

	From    int64    `json:"from,omitempty,string"` // the completed work that its item went on from; 0: none
	Again   bool     `json:"again,omitempty"`       // when it was handed out, somebody had let go of the item before
	Earlier []Ending `json:"earlier,omitzero"`      // how, for those who may know; nil but for GET /work/{id}

	// DetailsLeftOut says that there are details that this answer leaves out, with {} in their place: they were too much for it, and
	// GET /work/{id} has them; or for any answer, see MaxDetails and MaxLevels.
	DetailsLeftOut bool `json:"details_left_out,omitempty"`

	TaskID int64 `json:"-"`
}

// Ending is how somebody let go of an item.
type Ending struct {
	ID       int64     `json:"id,string"` // of that work
	User     string    `json:"user"`
	Instance string    `json:"instance,omitempty"`
	State    WorkState `json:"state"` // what became of it
	ClosedAt time.Time `json:"closed_at"`
	ClosedBy *string   `json:"closed_by,omitempty"` // its holder, or a manager; nil if its lease ran out
	Code     *string   `json:"code,omitempty"`
	Note     *string   `json:"note"`
	Error    *string   `json:"error,omitempty"`
}

// RanOut reports whether the end of its lease closed the work.
func (w *Work) RanOut() bool { return w.ClosedAt != nil && w.ClosedBy == nil }

// Holder returns the holder who has the work, or had it.
func (w *Work) Holder() Holder { return Holder{w.User, w.Instance} }

// Pipeline is all work that a holder has, the requests that wait, and the absences that are in force or to come.
type Pipeline struct {
	Work     []Work    `json:"work"`
	Requests []Request `json:"requests"`
	Absences []Absence `json:"absences,omitempty"`

	At time.Time `json:"-"` // when it was read, by the database's clock
}

// Of returns the part of the pipeline that is of these tasks.
func (p Pipeline) Of(tasks []string) Pipeline {
	some := Pipeline{Work: []Work{}, Requests: []Request{}, Absences: p.Absences, At: p.At}
	for _, w := range p.Work {
		if slices.Contains(tasks, w.Task) {
			some.Work = append(some.Work, w)
		}
	}
	for _, r := range p.Requests {
		others := func(name string) bool { return !slices.Contains(tasks, name) }
		if slices.Contains(tasks, r.Task) || r.Task == "*" && !slices.ContainsFunc(r.Tasks, others) {
			some.Requests = append(some.Requests, r)
		}
	}
	return some
}

// Disposition is how a holder lets go of work.
type Disposition struct {
	Outcome string    `json:"outcome,omitempty"` // complete, return, never or fail; empty: what the code does
	Code    *string   `json:"code,omitempty"`    // of one of the task's outcomes
	After   *Duration `json:"after,omitempty"`   // with return: 0 to 72 hours until it may be handed out again
	To      *string   `json:"to,omitempty"`      // with return: "all", or "others", which means not to the same user again
	Error   *string   `json:"error,omitempty"`   // with fail: what went wrong, at most 4 KiB
	Note    *string   `json:"note,omitempty"`    // at most 4 KiB

	Result map[string]any `json:"result,omitempty"` // by the fields that the task keeps; not with fail
}

// State returns the state that the disposition leaves work in; "" if its outcome is unknown.
func (d Disposition) State() WorkState {
	switch d.Outcome {
	case "complete":
		return WorkCompleted
	case "return":
		return WorkReturned
	case "never":
		return WorkNever
	case "fail":
		return WorkFailed
	}
	return ""
}

const (
	maxAfter = Duration(72 * time.Hour)
	maxNote  = 4096
)

// ToOthers reports whether the item must not be offered to the same user again.
func (d Disposition) ToOthers() bool { return d.To != nil && *d.To == "others" }

// Check returns a [Refusal] that is [Invalid] if the disposition is wrong.
func (d Disposition) Check() error {
	if d.State() == "" && (d.Outcome != "" || d.Code == nil) {
		return RefuseField("outcome", `outcome is "complete", "return", "never" or "fail", not %q`, d.Outcome)
	}
	if d.Outcome == "return" && d.After == nil && d.Code == nil {
		return RefuseField("after", `a return says after how long the item may come back: "after" from "0s" to "72h"`)
	}
	for field, given := range map[string]bool{"after": d.After != nil, "to": d.To != nil} {
		if given && d.Outcome != "return" && d.Outcome != "" {
			return RefuseField(field, `%q belongs to the outcome "return"; leave it out of %q`, field, d.Outcome)
		}
	}
	if d.After != nil && (*d.After < 0 || *d.After > maxAfter) {
		return RefuseField("after", `"after" is from "0s" to "72h", not %q`, d.After.String())
	}
	if d.To != nil && *d.To != "all" && *d.To != "others" {
		return RefuseField("to", `"to" is "all" or "others", not %q`, *d.To)
	}
	if d.Error != nil && d.Outcome != "fail" {
		return RefuseField("error", `"error" belongs to the outcome "fail"; leave it out of %q`, d.Outcome)
	}
	for field, given := range map[string]bool{"code": d.Code != nil, "result": d.Result != nil} {
		if given && d.Outcome == "fail" {
			return RefuseField(field, `%q does not belong to the outcome "fail"; leave it out`, field)
		}
	}
	if err := checkNote("note", d.Note); err != nil {
		return err
	}
	return checkNote("error", d.Error)
}

// MaxMany is how much work one call disposes of, or extends, at most.
const MaxMany = 1000

// Disposal is the disposition of one of several works.
type Disposal struct {
	ID int64 `json:"id,string"`
	Disposition
}

// Result is what became of one of several works in a call: the work as it is now, or the problem with which it was refused.
type Result struct {
	ID      int64    `json:"id,string"`
	Status  int      `json:"status"` // as of a call for this one alone
	Work    *Work    `json:"work,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
}

// Refused returns the result for work that is refused.
func Refused(id int64, r *Refusal) Result {
	p := r.Problem()
	return Result{ID: id, Status: p.Status, Problem: &p}
}

// CheckMany returns a [Refusal] of a call that names too much work, or any of it twice. field is the list's name, and suffix what
// follows a place in it, such as ".id".
func CheckMany(ids []int64, field, suffix string) error {
	if len(ids) > MaxMany {
		return Refuse(TooLarge, "a call is for at most %d works; this one names %d: send it in parts", MaxMany, len(ids))
	}
	at := make(map[int64]int, len(ids))
	for i, id := range ids {
		if first, twice := at[id]; twice {
			return RefuseField(fmt.Sprintf("%s[%d]%s", field, i, suffix), "work %d is named twice, first in %s[%d]; nothing was done: name each once", id, field, first)
		}
		at[id] = i
	}
	return nil
}

func checkNote(field string, text *string) error {
	switch {
	case text == nil:
		return nil
	case !utf8.ValidString(*text) || strings.ContainsRune(*text, 0):
		return RefuseField(field, "%q is UTF-8 text without NUL", field)
	case len(*text) > maxNote:
		return RefuseField(field, "%q has at most %d bytes; this one has %d", field, maxNote, len(*text))
	}
	return nil
}

// WorkFilter selects work. Empty fields do not filter.
type WorkFilter struct {
	Task   string // the task's present name; work of deleted tasks is found by user or item
	User   string
	Item   string
	State  WorkState
	Value  string // only work of the last [ValueWithin] with this in one of its details, whatever the case; needs a task
	Before int64  // only ids below it; 0 for the newest
	Limit  int    // at most so many; 0 selects none
}

// ValueWithin is how old work may be that is found by a value in its details. No index has these values: they are read.
const ValueWithin = 31 * 24 * time.Hour

// Check returns a [Refusal] that is [Invalid] if the filter is wrong.
func (f *WorkFilter) Check() error {
	if f.Value != "" && f.Task == "" {
		return RefuseField("task", "name the task whose work to search for a value")
	}
	if len(f.Value) > 1000 || !utf8.ValidString(f.Value) || strings.ContainsRune(f.Value, 0) {
		return RefuseField("value", "a value to search for is UTF-8 text of at most 1000 bytes without NUL")
	}
	if f.User != "" {
		if err := CheckUser(f.User); err != nil {
			return err
		}
	}
	if f.Item != "" {
		if detail := CheckItem(f.Item); detail != "" {
			return RefuseField("item", "%s", detail)
		}
	}
	if f.State != "" && !slices.Contains(workStates, f.State) {
		return RefuseField("state", "a state of work is one of held, completed, returned, never, failed, expired, reassigned, not %q", f.State)
	}
	return nil
}

// Reassignment says who gets held work.
type Reassignment struct {
	User  string `json:"user"`
	Force bool   `json:"force,omitempty"` // also if nobody of that name has been seen
}

// Release returns all work that a user holds, or that is held of a task, or that the user holds of the task, and cancels what that user
// waits for (of that task, if one is named). A dry run comes first: it counts both, and gives a token for exactly that set of work. The real call names the token.
type Release struct {
	User   string `json:"user,omitempty"`
	Task   string `json:"task,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	Token  string `json:"token,omitempty"`
	Code   string `json:"code,omitempty"` // why: of an outcome of each of the tasks, as far as they have any
}

// Released is the result of a release: how much it concerns.
type Released struct {
	Count    int    `json:"count"`           // of work
	Requests int    `json:"requests"`        // of its user that wait, and are cancelled
	Token    string `json:"token,omitempty"` // of a dry run
}

// NoWork returns the refusal, [NotFound], of work that does not exist or is not the caller's.
func NoWork(id int64) error {
	return Refuse(NotFound, "no work %d of yours; GET /api/v1/pipeline lists what you hold", id)
}
