//go:build unix

package demo

import "syscall"

// apart keeps a Ctrl-C in the terminal from the nodes: the demo ends them in its own order.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
