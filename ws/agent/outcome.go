package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"getwork/assign"
)

// Why a handler's context was cancelled, as context.Cause tells.
var (
	// ErrLeaseLost: the work is no longer the agent's. What the handler returns is not told to anybody.
	ErrLeaseLost = errors.New("the lease is lost")

	// ErrDraining: the agent ends, and its time to do so is over. Work that isn't done goes back at once.
	ErrDraining = errors.New("the agent ends")
)

// ErrLater is what a handler returns when the item can't be worked on now: it comes back after the task's back-off, and
// no attempt is burnt. An error that wraps it leaves its text as the work's note.
var ErrLater error = &putOff{text: "later"}

// ReturnAfter is what a handler returns when the item can't be worked on before d is over: from 0 to 72 hours, and the
// nearer of the two for what is outside. No attempt is burnt. note, if not empty, is kept with the work.
func ReturnAfter(d time.Duration, note string) error {
	after := assign.Duration(min(max(d, 0), 72*time.Hour))
	return &putOff{after: &after, note: note, text: "return after " + after.String()}
}

type putOff struct {
	after *assign.Duration // nil: the task's back-off
	note  string
	text  string
}

func (p *putOff) Error() string { return p.text }

// giveBack puts work back at once: nothing was done.
func giveBack() assign.Disposition {
	return assign.Disposition{Outcome: "return", After: new(assign.Duration)}
}

// outcome makes a disposition of what a handler returned; ctx is the one that it had. An after that is missing is the
// task's back-off, for the caller to fill in.
func outcome(ctx context.Context, err error) assign.Disposition {
	var p *putOff
	switch {
	case err == nil:
		return assign.Disposition{Outcome: "complete"}
	case errors.As(err, &p):
		note := p.note
		if wrapped := errors.Unwrap(err); wrapped != nil { // somebody said more around it
			note = err.Error()
		}
		return assign.Disposition{Outcome: "return", After: p.after, Note: clean(note)}
	case errors.Is(context.Cause(ctx), ErrDraining):
		return giveBack()
	}
	return assign.Disposition{Outcome: "fail", Error: clean(err.Error())}
}

// maxText is how long a note and an error may be, in bytes.
const maxText = 4 << 10

// clean makes text of what a node would refuse otherwise: too long, not UTF-8, or with a NUL. Nothing is nil.
func clean(text string) *string {
	if text == "" {
		return nil
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return &text
}
