// Package command has what every command of the program shares: where it prints, and how it says that it was given wrongly.
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

// UsageError is a command that can't be carried out as it was given: exit status 2.
type UsageError struct{ error }

// Usage is an error that says what was wrong with a command line.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// AsUsage says of an error that it comes from how the command was given.
func AsUsage(err error) error { return UsageError{err} }
