//go:build unix

package command

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Columns returns how many columns the terminal w has, or 0 if it is none.
func Columns(w io.Writer) int {
	f, is := w.(*os.File)
	if !is || !IsTerminal(f) {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ) //nolint:gosec // a file's number is small
	if err != nil {
		return 0
	}
	return int(size.Col)
}
