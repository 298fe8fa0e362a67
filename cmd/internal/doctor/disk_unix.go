//go:build unix

package doctor

import "syscall"

// available returns the free and the total bytes of a folder's file system.
func available(folder string) (free, total int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail * uint64(s.Bsize)), int64(s.Blocks * uint64(s.Bsize)), nil
}
