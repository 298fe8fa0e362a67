package bench

import "syscall"

// nodeAttributes have the kernel kill the node when the thread that started it ends, which it does with this process,
// however that dies; and keep a Ctrl-C in the terminal from it: the bench ends its nodes itself.
func nodeAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
