//go:build !unix

package demo

import "syscall"

// apart is nothing special here: no private PostgreSQL starts on these systems, and so no demo.
func apart() *syscall.SysProcAttr { return nil }
