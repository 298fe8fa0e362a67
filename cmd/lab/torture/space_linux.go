package torture

import "syscall"

// available returns how many bytes are free in the file system of a folder, or 0 if the folder does not exist.
func available(dir string) uint64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
