package main

import (
	"os"

	"getwork/cmd/internal/bench"
)

// benchRawCmd is the other end of `getwork bench`'s raw TCP limit, which it starts itself.
type benchRawCmd struct {
	Connections int `arg:""`
	Size        int `arg:""`
}

// Run serves until standard input ends.
func (c *benchRawCmd) Run(s *streams) error {
	return bench.RawTCP(os.Stdin, s.rawOut, c.Connections, c.Size)
}
