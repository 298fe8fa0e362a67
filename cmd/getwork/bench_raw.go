package main

import (
	"context"
	"os"

	"getwork/cmd/internal/bench"
)

// benchRawCmd is the other end of `getwork bench`'s raw TCP limit, which it starts itself.
type benchRawCmd struct{}

// Run serves until standard input ends.
func (c *benchRawCmd) Run(ctx context.Context, s *streams) error {
	return bench.RawTCP(ctx, os.Stdin, s.rawOut)
}
