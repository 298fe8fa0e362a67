//go:build !linux

package protocol

import "syscall"

// attributes are none: a search ends by its own time limit.
func attributes() *syscall.SysProcAttr { return nil }
