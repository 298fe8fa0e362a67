//go:build !linux

package protocol

import "syscall"

// attributes are nil here: after the test's death a search ends by its own time limit.
func attributes() *syscall.SysProcAttr { return nil }
