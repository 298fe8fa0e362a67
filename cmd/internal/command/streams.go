package command

import (
	"fmt"
	"io"
	"os"
)

// Data is the stream for an export, which other programs read. On a terminal it is made visible; a file or a pipe gets its bytes, because
// CSV has no escapes.
func (s *Streams) Data() io.Writer {
	if f, ok := s.RawOut.(*os.File); ok && !IsTerminal(f) {
		return f
	}
	return s.Out
}

// Streams are a command's standard streams.
type Streams struct {
	Out, Errs       io.Writer // for output that contains data
	RawOut, RawErrs io.Writer // for the output of other programs, and for progress lines

	warned map[string]bool // lines that were written
}

// Warn writes a line to Errs, once.
func (s *Streams) Warn(line string) {
	if s.warned[line] {
		return
	}
	if s.warned == nil {
		s.warned = map[string]bool{}
	}
	s.warned[line] = true
	_, _ = fmt.Fprintln(s.Errs, line)
}

// IsTerminal reports whether f is a terminal, so that somebody can answer. It does not take the null device for one,
// though that is a character device, too.
func IsTerminal(f *os.File) bool {
	is, err := f.Stat()
	if err != nil || is.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(is, null)
}
