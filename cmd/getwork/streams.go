package main

import (
	"io"
	"os"
)

// document is where to print YAML, which has no such escapes in most places: a file gets it as it is.
func (s *streams) document() io.Writer {
	if f, ok := s.rawOut.(*os.File); ok && !isTerminal(f) {
		return f
	}
	return s.out
}

// streams are where a command prints.
type streams struct {
	out, errs       io.Writer // for everything that holds data
	rawOut, rawErrs io.Writer // for what other programs print, and for a progress line
}

// isTerminal reports whether somebody can answer there. The null device is a character device, too.
func isTerminal(f *os.File) bool {
	is, err := f.Stat()
	if err != nil || is.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(is, null)
}
