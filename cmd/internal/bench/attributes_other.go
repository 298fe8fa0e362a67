//go:build !unix

package bench

import "syscall"

// nodeAttributes are none: a node ends when its standard input is closed.
func nodeAttributes() *syscall.SysProcAttr { return nil }
