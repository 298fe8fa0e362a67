// Package command has what all commands of the program share: output streams, exit statuses, and usage errors.
package command

import (
	"fmt"
)

// The exit statuses.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// UsageError is the error of a command that was given wrongly: exit status 2.
type UsageError struct{ error }

// Usage returns a [UsageError] with a formatted text. Like [fmt.Errorf] it wraps operands of %w.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// AsUsage turns err, which must not be nil, into a [UsageError].
func AsUsage(err error) error { return UsageError{err} }
