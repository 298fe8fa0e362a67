//go:build unix

package logins

import (
	"errors"
	"os"
	"syscall"
)

// lock waits until no other program of this user changes the tokens in a folder, and keeps the others waiting. The system
// releases the lock of a program that dies.
func lock(file string) (release func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.EINTR
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		_ = f.Close()
		return nil, &os.PathError{Op: "lock", Path: file, Err: err}
	}
	return func() { _ = f.Close() }, nil
}
