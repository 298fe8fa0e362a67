//go:build unix && !linux

package cli

import "syscall"

// groupAttributes put a program into a process group of its own.
func groupAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitEnd can't wait here without giving the child's id free.
func awaitEnd(int) (ours bool) { return false }
