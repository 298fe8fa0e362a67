//go:build unix && !linux

package bench

import "syscall"

// nodeAttributes keep a Ctrl-C in the terminal from the node: the bench ends its nodes itself.
func nodeAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
