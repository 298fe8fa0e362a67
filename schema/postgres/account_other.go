//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package postgres

import (
	"errors"
	"os"
	"syscall"
)

// On other systems nothing ensures yet that the server ends with this process, so none is started.
var errUnsupported = errors.New("a private PostgreSQL needs Linux, macOS or BSD: give the URL of a running one")

type account struct{}

func accountFor(string) (*account, error)       { return nil, errUnsupported }
func (*account) give(string) error              { return errUnsupported }
func (*account) canReach(string) error          { return errUnsupported }
func sysProcAttr(*account) *syscall.SysProcAttr { return nil }
func lockDir(string) (*os.File, error)          { return nil, errUnsupported }
func unlockDir(*os.File) error                  { return errUnsupported }
func exists(int) bool                           { return false }

const (
	fastShutdown      = syscall.SIGINT
	immediateShutdown = syscall.SIGKILL
)
