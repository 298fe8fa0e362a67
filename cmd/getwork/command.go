package main

import (
	"fmt"
)

// The exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a command that can't be carried out as it was given: exit status 2.
type usageError struct{ error }

// usage is an error that says what was wrong with a command line.
func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// asUsage says of an error that it comes from how the command was given.
func asUsage(err error) error { return usageError{err} }
