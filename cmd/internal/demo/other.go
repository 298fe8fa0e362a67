//go:build !unix

package demo

import "syscall"

// apart does nothing here: private PostgreSQL servers, and so the demo, do not run on these systems.
func apart() *syscall.SysProcAttr { return nil }
