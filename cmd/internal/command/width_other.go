//go:build !unix

package command

import "io"

// Columns returns 0: nobody knows how wide the terminal is.
func Columns(io.Writer) int { return 0 }
