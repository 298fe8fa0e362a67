package cli

import (
	"errors"
	"syscall"
)

// groupAttributes returns attributes that put a program into a process group of its own. With them the kernel kills the program when
// the thread that started it ends. So the program dies with the agent, even before the warden knows of it.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd waits until a child has ended but does not reap it, so ours ensures that no other process gets its id.
func awaitEnd(pid int) (ours bool) {
	const byPID = 1 // P_PID
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), 0, syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if !errors.Is(err, syscall.EINTR) {
			return err == 0
		}
	}
}
