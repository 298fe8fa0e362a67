//go:build !unix

package node

import "syscall"

// Attributes returns none: a node ends when its standard input is closed.
func Attributes() *syscall.SysProcAttr { return nil }
