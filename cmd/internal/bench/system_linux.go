package bench

import (
	"os"
	"syscall"
)

// freeBytes returns the free space of a folder's disk.
func freeBytes(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// syncData makes the disk keep a file's data, as PostgreSQL does by default on Linux.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
