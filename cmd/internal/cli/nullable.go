package cli

import (
	"encoding"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"getwork/assign"
)

// nullable is a field of a task that may be null, such as lease. It is unnamed, null, or has a value. Files write null
// as null, the command line as "none".
type nullable[T any] struct {
	named bool
	value *T // nil: null
}

// SetTo returns a field with a value.
func SetTo[T any](v T) nullable[T] { return nullable[T]{true, &v} }

// IsZero reports whether the field is unnamed; JSON and YAML then leave it out.
func (n nullable[T]) IsZero() bool { return !n.named }

// MarshalJSON writes the value, or null.
func (n nullable[T]) MarshalJSON() ([]byte, error) { return json.Marshal(n.value) }

// UnmarshalJSON reads a value or null.
func (n *nullable[T]) UnmarshalJSON(b []byte) error {
	n.named, n.value = true, nil
	return json.Unmarshal(b, &n.value)
}

// MarshalYAML writes the value, or null.
func (n nullable[T]) MarshalYAML() (any, error) {
	if n.value == nil {
		return nil, nil
	}
	return *n.value, nil
}

// UnmarshalYAML reads a value. go-yaml does not call it for null: see [readTask].
func (n *nullable[T]) UnmarshalYAML(read func(any) error) error {
	n.named, n.value = true, new(T)
	return read(n.value)
}

// Decode reads a flag's value.
func (n *nullable[T]) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto(ctx.Value.Name, &text); err != nil {
		return err
	}
	n.named, n.value = true, nil
	if text == "none" {
		return nil
	}
	n.value = new(T)
	switch v := any(n.value).(type) {
	case *int:
		i, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("a whole number or none, not %q", text)
		}
		*v = i
	case *assign.Display:
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			return fmt.Errorf("JSON such as {\"title\":\"{name}\"}, or none: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
	case *string:
		*v = text
	case encoding.TextUnmarshaler:
		return v.UnmarshalText([]byte(text))
	default:
		return fmt.Errorf("a flag can't be read into %T", v)
	}
	return nil
}
