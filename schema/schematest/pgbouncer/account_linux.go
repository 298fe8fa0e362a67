package pgbouncer

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account returns the user that runs PgBouncer when this process is root, which PgBouncer refuses to run as; nil means
// the same user.
type account struct{ uid, gid int }

func accountFor() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres") // as the tests' servers do, so that it may enter the folder of their sockets
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("PgBouncer does not run as root, and there is no user postgres or nobody: %w", err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return &account{uid, gid}, errors.Join(err1, err2)
}

// give makes the account the owner of a file.
func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

// attributes make the kernel kill the process when the thread that started it ends. The thread ends with the test binary,
// even by SIGKILL.
func (a *account) attributes() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if a != nil {
		attributes.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attributes
}
