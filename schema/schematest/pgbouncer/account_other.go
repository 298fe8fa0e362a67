//go:build !linux

package pgbouncer

import (
	"errors"
	"os"
	"syscall"
)

// account returns nil: on other systems PgBouncer runs as this process's user, and ends with its test.
type account struct{}

func accountFor() (*account, error) {
	if os.Geteuid() == 0 {
		return nil, errors.New("PgBouncer does not run as root: test as another user")
	}
	return nil, nil
}

func (*account) give(string) error                { return nil }
func (*account) attributes() *syscall.SysProcAttr { return nil }
