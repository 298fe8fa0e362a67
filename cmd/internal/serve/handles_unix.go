//go:build unix

package serve

import "syscall"

// handles returns how many files this process may open. Go has raised the limit as far as it may.
func handles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20))
}
