package assign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Outcome is one of a task's reasons to let go of work. Its code says what is done.
type Outcome struct {
	Code  string    `json:"code"`            // as of a task's name
	Label string    `json:"label"`           // what people read
	Do    string    `json:"do"`              // complete, return or never
	After *Duration `json:"after,omitempty"` // of a return that does not say it; nil: it must
	To    string    `json:"to,omitempty"`    // of a return that does not say it: all or others; empty: all
	Note  string    `json:"note,omitempty"`  // none, may or must; empty: may
}

// ResultField is one field of the results that a task keeps.
type ResultField struct {
	Name     string `json:"name"`
	Type     string `json:"type"`               // string, number, boolean or date
	Enum     []any  `json:"enum,omitempty"`     // strings or numbers: the only values
	Min      any    `json:"min,omitempty"`      // of numbers and dates
	Max      any    `json:"max,omitempty"`      // of numbers and dates
	Required bool   `json:"required,omitempty"` // in a completion
}

// Codes of what the server itself does to work, or a program's failure does. No task has a code that begins so.
const (
	CodeFailed     = "_failed"
	CodeExpired    = "_expired"
	CodeReleased   = "_released"
	CodeReassigned = "_reassigned"
	CodeAway       = "_away"
)

// MaxResult is how many bytes a result has at most.
const MaxResult = 16 << 10

var fieldName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

// checkOutcomes adds what is wrong with outcomes and fields of results, and where.
func (s *Settings) checkOutcomes(wrong func(bad bool, field, detail string)) {
	wrong(s.RequireCode && len(s.Outcomes) == 0, "require_code", "a task that requires a code has outcomes, which are its codes")
	seen := map[string]bool{}
	for i, o := range s.Outcomes {
		fault := o.fault()
		if fault == "" && seen[o.Code] {
			fault = "this code stands there twice"
		}
		seen[o.Code] = true
		wrong(fault != "", "outcomes", fmt.Sprintf("outcomes[%d] (%.64s): %s", i, o.Code, fault))
	}
	seen = map[string]bool{}
	for i, f := range s.Result {
		fault := f.fault()
		if fault == "" && seen[f.Name] {
			fault = "this name stands there twice"
		}
		seen[f.Name] = true
		wrong(fault != "", "result", fmt.Sprintf("result[%d] (%.64s): %s", i, f.Name, fault))
	}
}

// fault returns what is wrong with the outcome; "" if nothing is.
func (o *Outcome) fault() string {
	switch {
	case !IsTaskName(o.Code):
		return "a code is 1 to 63 of a-z, 0-9 and hyphens, and does not begin with a hyphen"
	case o.Label == "" || len(o.Label) > 200 || strings.ContainsRune(o.Label, 0):
		return "a label, which people read, has 1 to 200 bytes"
	case !slices.Contains([]string{"complete", "return", "never"}, o.Do):
		return fmt.Sprintf("do is complete, return or never, not %q", o.Do)
	case o.Do != "return" && (o.After != nil || o.To != ""):
		return `after and to belong to what does "return"`
	case o.After != nil && (*o.After < 0 || *o.After > maxAfter):
		return `after is from "0s" to "72h"`
	case !slices.Contains([]string{"", "all", "others"}, o.To):
		return fmt.Sprintf("to is all or others, not %q", o.To)
	case !slices.Contains([]string{"", "none", "may", "must"}, o.Note):
		return fmt.Sprintf("note is none, may or must, not %q", o.Note)
	}
	return ""
}

// fault returns what is wrong with the field; "" if nothing is.
func (f *ResultField) fault() string {
	switch {
	case !fieldName.MatchString(f.Name):
		return "a name is 1 to 63 of letters, digits, _ and -, and begins with a letter or _"
	case !slices.Contains([]string{"string", "number", "boolean", "date"}, f.Type):
		return fmt.Sprintf("type is string, number, boolean or date, not %q", f.Type)
	case f.Enum != nil && f.Type != "string" && f.Type != "number":
		return "enum is of strings and numbers"
	case f.Enum != nil && (len(f.Enum) == 0 || len(f.Enum) > 100):
		return "enum has 1 to 100 values"
	case (f.Min != nil || f.Max != nil) && f.Type != "number" && f.Type != "date":
		return "min and max are of numbers and dates"
	}
	plain := ResultField{Type: f.Type}
	for _, v := range f.Enum {
		if fault := plain.refuse(v); fault != "" {
			return "enum: " + fault
		}
		if text, is := v.(string); is && len(text) > 200 {
			return "a value of enum has at most 200 bytes"
		}
	}
	for name, v := range map[string]any{"min": f.Min, "max": f.Max} {
		if v == nil {
			continue
		}
		if fault := plain.refuse(v); fault != "" {
			return name + ": " + fault
		}
	}
	if f.Min != nil && f.Max != nil && less(f.Max, f.Min) {
		return "min is not more than max"
	}
	return ""
}

// numberOf returns a number of JSON or YAML.
func numberOf(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, !math.IsInf(n, 0) && !math.IsNaN(n)
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	case int:
		return float64(n), true
	}
	return 0, false
}

// less compares two numbers, or two dates.
func less(a, b any) bool {
	if x, is := a.(string); is {
		y, _ := b.(string)
		return x < y
	}
	x, _ := numberOf(a)
	y, _ := numberOf(b)
	return x < y
}

// refuse returns what is wrong with a value of the field; "" if nothing is.
func (f *ResultField) refuse(v any) string {
	text, isText := v.(string)
	n, isNumber := numberOf(v)
	_, isBool := v.(bool)
	switch f.Type {
	case "string":
		if !isText || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return "it is text without NUL"
		}
	case "number":
		if !isNumber {
			return "it is a number"
		}
	case "boolean":
		if !isBool {
			return "it is true or false"
		}
	case "date":
		if _, err := time.Parse(time.DateOnly, text); !isText || err != nil {
			return "it is a date, such as 2030-01-31"
		}
	}
	if f.Enum != nil && !slices.ContainsFunc(f.Enum, func(one any) bool {
		if of, is := numberOf(one); is {
			return isNumber && of == n
		}
		return one == v
	}) {
		values, _ := json.Marshal(f.Enum)
		return "it is one of " + string(values)
	}
	if f.Min != nil && less(v, f.Min) {
		return fmt.Sprintf("it is at least %v", f.Min)
	}
	if f.Max != nil && less(f.Max, v) {
		return fmt.Sprintf("it is at most %v", f.Max)
	}
	return ""
}

// Canonical returns a result in one form, whatever the order of its fields and the way of writing its numbers. Null is no value. Nil: it is
// empty.
func Canonical(result map[string]any) json.RawMessage {
	said := make(map[string]any, len(result))
	for name, v := range result {
		if v != nil {
			said[name] = v
		}
	}
	if len(said) == 0 {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(said); err != nil { // it was decoded from JSON
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// OutcomeRules are a task's settings by which a disposition is judged.
type OutcomeRules struct {
	Task        string
	Version     int
	Outcomes    []Outcome
	RequireCode bool
	Result      []ResultField
}

// Find returns the outcome of that code; nil if there is none.
func (r *OutcomeRules) Find(code string) *Outcome {
	for i := range r.Outcomes {
		if r.Outcomes[i].Code == code {
			return &r.Outcomes[i]
		}
	}
	return nil
}

// codes lists the task's codes for a refusal.
func (r *OutcomeRules) codes() string {
	if len(r.Outcomes) == 0 {
		return "it has none"
	}
	var codes []string
	for _, o := range r.Outcomes {
		codes = append(codes, o.Code)
	}
	return "it has " + strings.Join(codes, ", ")
}

// Apply returns the disposition with what its code says, or a [Refusal] of kind [Mismatch] if it is against the task's codes or fields.
// [Disposition.Check] must have passed it.
func (r *OutcomeRules) Apply(d Disposition) (Disposition, error) {
	if d.Code == nil {
		if d.Outcome == "fail" {
			return d, nil
		}
		if r.RequireCode {
			return d, mismatch("code", "the task %s asks for a reason: name one of its codes in code; %s", r.Task, r.codes())
		}
		return d, r.fits(d, false)
	}
	o := r.Find(*d.Code)
	switch {
	case o == nil:
		return d, mismatch("code", "the task %s has no code %.64q now; %s", r.Task, *d.Code, r.codes())
	case d.Outcome != "" && d.Outcome != o.Do:
		return d, mismatch("outcome", "the code %s does %q, not %q; leave outcome out, or send that", o.Code, o.Do, d.Outcome)
	case o.Note == "must" && (d.Note == nil || strings.TrimSpace(*d.Note) == ""):
		return d, mismatch("note", "the code %s needs a note", o.Code)
	case o.Note == "none" && d.Note != nil && *d.Note != "":
		return d, mismatch("note", "the code %s takes no note; leave it out", o.Code)
	}
	d.Outcome = o.Do
	if o.Do == "return" && d.After == nil {
		d.After = o.After
	}
	if o.To != "" && d.To == nil {
		d.To = &o.To
	}
	switch {
	case o.Do == "return" && d.After == nil:
		return d, mismatch("after", `the code %s says no time: say after how long the item may come back, "after" from "0s" to "72h"`, o.Code)
	case o.Do != "return" && d.After != nil:
		return d, mismatch("after", `the code %s does %q, which takes no "after"; leave it out`, o.Code, o.Do)
	case o.Do != "return" && d.To != nil:
		return d, mismatch("to", `the code %s does %q, which takes no "to"; leave it out`, o.Code, o.Do)
	}
	return d, r.fits(d, o.Do == "complete")
}

// Returns refuses a code for which a release can't return work, with [Mismatch].
func (r *OutcomeRules) Returns(code string) error {
	o := r.Find(code)
	switch {
	case code == "":
		return mismatch("code", "the task %s asks for a reason: name one of its codes that return work in code; %s", r.Task, r.codes())
	case o == nil:
		return mismatch("code", "the task %s has no code %.64q now; %s", r.Task, code, r.codes())
	case o.Do != "return":
		return mismatch("code", "the code %s of the task %s does %q, and a release returns work; name one that does", code, r.Task, o.Do)
	}
	return nil
}

// fits returns a refusal that names every field of the result that does not fit. complete: those that are required must be there.
func (r *OutcomeRules) fits(d Disposition, complete bool) error {
	canonical := Canonical(d.Result)
	if len(canonical) > MaxResult {
		return mismatch("result", "a result has at most %d bytes; this one has %d", MaxResult, len(canonical))
	}
	var fields []Field
	known := map[string]bool{}
	for _, f := range r.Result {
		known[f.Name] = true
		v := d.Result[f.Name]
		switch {
		case v != nil:
			if fault := f.refuse(v); fault != "" {
				fields = append(fields, Field{"result." + f.Name, fault})
			}
		case f.Required && (complete || canonical != nil && d.Outcome == "complete"):
			fields = append(fields, Field{"result." + f.Name, "it is required"})
		}
	}
	var others []string
	for name, v := range d.Result {
		if v != nil && !known[name] {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range others[:min(len(others), 10)] {
		fields = append(fields, Field{fmt.Sprintf("result.%.64s", name), fmt.Sprintf("the task %s has no such field", r.Task)})
	}
	if fields == nil {
		return nil
	}
	refusal := Refuse(Mismatch, "%s: %s", fields[0].Field, fields[0].Detail)
	refusal.Fields = fields
	return refusal
}

// mismatch refuses one field of a disposition that is against its task's codes.
func mismatch(field, format string, args ...any) *Refusal {
	r := RefuseField(field, format, args...)
	r.Kind = Mismatch
	return r
}
