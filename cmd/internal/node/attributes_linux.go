package node

import "syscall"

// Attributes returns attributes with which the kernel kills a process when the thread that started it ends, and so when
// the program that started it dies in any way. A frozen process would not notice that its standard input is closed, but
// it can't survive this. The attributes also keep a Ctrl-C in the terminal from the process: its parent ends it.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
