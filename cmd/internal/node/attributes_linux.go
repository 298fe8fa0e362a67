package node

import "syscall"

// Attributes have the kernel kill a process when the thread that started it ends, which it does with the program that
// started it, however that dies: a frozen one would not notice that its standard input is closed, but this it can't
// survive. And they keep a Ctrl-C in the terminal from it: whoever started it ends it.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
