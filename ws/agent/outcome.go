package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"getwork/assign"
)

// The causes of a handler's cancelled context, as [context.Cause] returns them.
var (
	// ErrLeaseLost means that the work is no longer the agent's. The handler's error is ignored.
	ErrLeaseLost = errors.New("the lease is lost")

	// ErrDraining means that the agent ends, and its time to drain is over. Unfinished work goes back at once.
	ErrDraining = errors.New("the agent ends")
)

// ErrLater is the error of a handler that can't work on the item now. The item comes back after the task's back-off, and
// uses no attempt. If an error wraps ErrLater, its text becomes the work's note.
var ErrLater error = &putOff{text: "later"}

// ReturnAfter returns the error for an item that can't be worked on before d is over. d is limited to 0 to 72 hours. It uses
// no attempt. note, if not empty, is kept with the work. If an error wraps this one, its text becomes the work's note.
func ReturnAfter(d time.Duration, note string) error {
	after := assign.Duration(min(max(d, 0), 72*time.Hour))
	text := "return after " + after.String()
	if note != "" { // so that an error that wraps this one has it
		text += ": " + note
	}
	return &putOff{after: &after, note: note, text: text}
}

type putOff struct {
	after *assign.Duration // nil: the task's back-off
	note  string
	text  string
}

func (p *putOff) Error() string { return p.text }

// As returns the error of a handler that decides by itself what becomes of the work: never, for example, or a return to others. A return
// without After comes back after its code's time, or else the task's back-off. A disposition that is wrong fails the work.
func As(d assign.Disposition) error { return &decided{d} }

type decided struct{ d assign.Disposition }

func (d *decided) Error() string {
	what := d.d.Outcome
	if d.d.Code != nil {
		what = *d.d.Code
	}
	return "the handler decides: " + what
}

// giveBack returns work at once, because nothing was done.
func giveBack() assign.Disposition {
	return assign.Disposition{Outcome: "return", After: new(assign.Duration)}
}

// outcome returns the disposition for a handler's error; ctx is the handler's. If After is missing, the caller fills in the
// task's back-off.
func outcome(ctx context.Context, err error) assign.Disposition {
	var p *putOff
	var own *decided
	switch {
	case err == nil:
		return assign.Disposition{Outcome: "complete"}
	case errors.As(err, &own):
		return own.checked()
	case errors.As(err, &p):
		note := p.note
		if _, bare := err.(*putOff); !bare { //nolint:errorlint // whether it was wrapped, perhaps beside its cause, is the question
			note = err.Error()
		}
		return assign.Disposition{Outcome: "return", After: p.after, Note: clean(note)}
	case errors.Is(context.Cause(ctx), ErrDraining):
		return giveBack()
	}
	return assign.Disposition{Outcome: "fail", Error: clean(err.Error())}
}

// checked returns the handler's disposition, or why it is wrong as a failure.
func (d *decided) checked() assign.Disposition {
	full := d.d
	if full.Outcome == "return" && full.After == nil {
		full.After = new(assign.Duration)
	}
	if err := full.Check(); err != nil {
		var r *assign.Refusal
		errors.As(err, &r)
		return invalid(r.Detail)
	}
	return d.d
}

// invalid returns the disposition in place of one that is wrong.
func invalid(why string) assign.Disposition {
	return assign.Disposition{Outcome: "fail", Error: clean("the result is not valid: " + why)}
}

// returns reports whether the disposition returns the work, and which of the task's outcomes is its code; nil: none.
func returns(d *assign.Disposition, outcomes []assign.Outcome) (does bool, code *assign.Outcome) {
	if d.Code == nil {
		return d.Outcome == "return", nil
	}
	i := slices.IndexFunc(outcomes, func(o assign.Outcome) bool { return o.Code == *d.Code })
	if i < 0 {
		return false, nil
	}
	return outcomes[i].Do == "return", &outcomes[i]
}

// maxText is the most bytes of a note or an error.
const maxText = 4 << 10

// clean makes text acceptable for a node, which refuses text that is too long, not UTF-8, or has a NUL. It returns nil for "".
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
