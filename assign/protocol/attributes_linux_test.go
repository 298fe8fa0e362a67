package protocol

import "syscall"

// attributes make the kernel kill a search when the test dies, even by SIGKILL.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
