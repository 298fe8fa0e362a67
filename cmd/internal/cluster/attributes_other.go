//go:build !linux

package cluster

import "syscall"

// attributes are none: a node ends when its standard input is closed.
func attributes() *syscall.SysProcAttr { return nil }
