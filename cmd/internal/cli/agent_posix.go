//go:build unix && !linux

package cli

import "syscall"

// groupAttributes returns attributes that put a program into a process group of its own.
func groupAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitEnd returns at once: waiting here would reap the child and free its id.
func awaitEnd(int) (ours bool) { return false }
