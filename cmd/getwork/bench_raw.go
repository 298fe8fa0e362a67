package main

import (
	"os"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/command"
)

// benchRawCmd is the other end of the raw TCP limit of `getwork bench`, which starts it.
type benchRawCmd struct {
	Connections int `arg:""`
	Size        int `arg:""`
}

// Run serves until standard input ends.
func (c *benchRawCmd) Run(s *command.Streams) error {
	return bench.RawTCP(os.Stdin, s.RawOut, c.Connections, c.Size)
}
