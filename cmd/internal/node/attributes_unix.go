//go:build unix && !linux

package node

import "syscall"

// Attributes returns attributes that keep a Ctrl-C in the terminal from a process: its parent ends it.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
