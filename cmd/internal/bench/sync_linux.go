package bench

import (
	"os"
	"syscall"
)

// syncData makes the disk keep a file's data, as PostgreSQL does by default on Linux.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
