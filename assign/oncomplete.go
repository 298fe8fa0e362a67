package assign

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
)

// OnComplete says where a share of a task's completed items goes: to the inbox of another task, in the same transaction.
type OnComplete struct {
	Task  string  `json:"task" yaml:"task"`   // an inbox
	Share float64 `json:"share" yaml:"share"` // above 0, at most 1

	When *OnCompleteWhen `json:"when,omitempty" yaml:"when,omitempty"` // nil: always
}

// OnCompleteWhen says of which completions a share goes on.
type OnCompleteWhen struct {
	Code []string `json:"code" yaml:"code"` // any of these
}

// Draws reports whether an item goes on with the completed work of that id. The id alone decides, so that everybody finds the same.
func (o *OnComplete) Draws(work int64) bool {
	sum := sha256.Sum256(strconv.AppendInt(nil, work, 10))
	return float64(binary.BigEndian.Uint64(sum[:8])>>11)/(1<<53) < o.Share
}

// check adds what is wrong.
func (o *OnComplete) check(task string, outcomes []Outcome, wrong func(bad bool, field, detail string)) {
	if o == nil {
		return
	}
	wrong(!IsTaskName(o.Task), "on_complete", "task names another task, an inbox")
	wrong(o.Task == task, "on_complete", "a task does not lead back to itself; name another task, an inbox")
	wrong(!(o.Share > 0 && o.Share <= 1), "on_complete", "share is above 0 and at most 1, such as 0.1 for one in ten")
	if o.When == nil {
		return
	}
	wrong(len(o.When.Code) == 0, "on_complete", "when.code lists codes of outcomes; leave when out if they all count")
	for i, code := range o.When.Code {
		completes := slices.ContainsFunc(outcomes, func(one Outcome) bool { return one.Code == code && one.Do == "complete" })
		wrong(!completes, "on_complete", fmt.Sprintf("when.code: no outcome of this task has the code %.64q and completes; add it to outcomes, or leave it out here", code))
		wrong(slices.Contains(o.When.Code[:i], code), "on_complete", fmt.Sprintf("when.code: %.64q stands there twice", code))
	}
}
