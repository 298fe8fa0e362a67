package command

import (
	"io"
	"os"
)

// Document is where to print YAML, which has no such escapes in most places: a file gets it as it is.
func (s *Streams) Document() io.Writer {
	if f, ok := s.RawOut.(*os.File); ok && !IsTerminal(f) {
		return f
	}
	return s.Out
}

// Streams are where a command prints.
type Streams struct {
	Out, Errs       io.Writer // for everything that holds data
	RawOut, RawErrs io.Writer // for what other programs print, and for a progress line
}

// IsTerminal reports whether somebody can answer there. The null device is a character device, too.
func IsTerminal(f *os.File) bool {
	is, err := f.Stat()
	if err != nil || is.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(is, null)
}
