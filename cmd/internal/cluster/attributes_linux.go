package cluster

import "syscall"

// attributes have the kernel kill the node when the thread that started it ends, which it does with the test
// binary, however that dies. A frozen node would not notice that its standard input is closed; this it can't
// survive.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
