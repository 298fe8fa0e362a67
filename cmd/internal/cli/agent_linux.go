package cli

import (
	"errors"
	"syscall"
)

// groupAttributes put a program into a process group of its own, and have the kernel kill it when the thread that
// started it ends: with the agent, even in the moment before the warden knows of it.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd waits until a child has ended, and leaves it to be waited for. ours: until then nobody else gets its id.
func awaitEnd(pid int) (ours bool) {
	const byPID = 1 // P_PID
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), 0, syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if !errors.Is(err, syscall.EINTR) {
			return err == 0
		}
	}
}
