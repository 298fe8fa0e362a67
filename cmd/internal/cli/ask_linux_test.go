package cli

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"getwork/cmd/internal/e2e"
)

// answers runs a command at a terminal where somebody types one line, and returns what it writes and whether it succeeded.
func answers(c e2e.Terminal, line string, args ...string) (said string, succeeded bool) {
	c.T.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		c.T.Fatal(err)
	}
	defer main.Close()
	var unlocked, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlocked, syscall.TIOCGPTN: &number} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, main.Fd(), request, uintptr(unsafe.Pointer(value))); e != 0 { //nolint:gosec // as ioctl(2) wants it
			c.T.Fatal(e)
		}
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		c.T.Fatal(err)
	}
	defer terminal.Close()
	command, out, errs := c.Command(args...)
	command.Stdin = terminal
	if _, err := main.WriteString(line + "\n"); err != nil {
		c.T.Fatal(err)
	}
	err = command.Run()
	return out.String() + errs.String(), err == nil
}

// Somebody at a terminal is asked before work goes to a name that nobody has.
func TestAsksFirst(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "photos", "--inbox")
	c.Run(0, nil, "items", "push", "photos", "a")
	c.Run(0, nil, "get", "photos")
	for _, one := range []struct {
		answer, says string
		done         bool
	}{
		{"n", "nothing was reassigned", false},
		{"y", "zoe   held", true},
	} {
		said, done := answers(c, one.answer, "work", "reassign", "1", "--to", "zoe")
		if done != one.done || !strings.Contains(said, "Nobody called zoe has logged in, asked for work or held any here; the name may be mistyped. Go on? [y/N]") || !strings.Contains(said, one.says) {
			t.Errorf("answered %s, it succeeded: %t\n%s", one.answer, done, said)
		}
	}
	c.Run(1, e2e.Text("is not held any more"), "work", "reassign", "1", "--to", "nobody")
}
