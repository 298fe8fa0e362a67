package torture

import "syscall"

// available is how many bytes are free in the file system of a folder, 0 when it isn't there.
func available(dir string) uint64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
