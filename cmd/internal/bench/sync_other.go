//go:build !linux

package bench

import "os"

// syncData has the disk keep a file's data.
func syncData(f *os.File) error { return f.Sync() }
