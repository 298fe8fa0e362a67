package protocol

import "syscall"

// attributes have the kernel kill a search when the test dies, however that happens.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
