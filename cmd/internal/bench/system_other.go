//go:build !linux

package bench

import (
	"errors"
	"os"
)

func freeBytes(string) (uint64, error) { return 0, errors.ErrUnsupported }

func syncData(f *os.File) error { return f.Sync() }
