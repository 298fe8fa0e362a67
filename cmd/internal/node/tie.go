package node

import (
	"os/exec"
	"runtime"
)

// Tie starts a program that does not outlive this one, however this one ends: on Linux the kernel kills it then, by [Attributes],
// which it gets unless it has some already. gone is called once the program has ended, with what Wait returned.
func Tie(c *exec.Cmd, gone func(error)) error {
	if c.SysProcAttr == nil {
		c.SysProcAttr = Attributes()
	}
	started := make(chan error)
	go func() {
		// The kernel kills the program when the thread that started it ends, so this thread lasts as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			gone(c.Wait())
		}
	}()
	return <-started
}
