//go:build !unix

package cli

import (
	"os"
	"syscall"
)

// There are no process groups here: only the program itself is killed, at once.

func groupAttributes() *syscall.SysProcAttr { return nil }

func awaitEnd(int) (ours bool) { return false }

func stopGroup(leader *os.Process) { _ = leader.Kill() }
func killGroup(leader *os.Process) { _ = leader.Kill() }

// warden does nothing here.
type warden struct{}

func newWarden() (*warden, error) { return nil, nil }
func (*warden) watch(int)         {}
func (*warden) forget(int)        {}
func (*warden) close()            {}
