package main

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// Only a terminal gets colours, and only if the user hasn't said otherwise.
func TestColours(t *testing.T) { // not parallel: it changes the environment
	for _, c := range []struct{ term, no, want string }{
		{term: "xterm", want: "\x1b[31mgetwork:\x1b[m "},
		{term: "xterm", no: "1", want: "getwork: "},
		{term: "dumb", want: "getwork: "},
		{want: "getwork: "},
	} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.no)
		if said := onTerminal(t, "no-such-command"); !strings.HasPrefix(said, c.want) {
			t.Errorf("TERM=%s, NO_COLOR=%s: it says %q, and should begin with %q", c.term, c.no, said, c.want)
		}
	}
	t.Setenv("TERM", "xterm")
	file, err := os.Create(t.TempDir() + "/errors")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	run([]string{"no-such-command"}, io.Discard, file)
	if said, err := os.ReadFile(file.Name()); err != nil || !strings.HasPrefix(string(said), "getwork: ") {
		t.Errorf("a file gets %q, %v", said, err)
	}
}

// onTerminal runs a command line whose errors go to a terminal, and returns the first line that it writes there.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer main.Close()
	var unlocked, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlocked, syscall.TIOCGPTN: &number} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, main.Fd(), request, uintptr(unsafe.Pointer(value))); e != 0 { //nolint:gosec // as ioctl(2) wants it
			t.Fatal(e)
		}
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	run(args, io.Discard, terminal)
	said, err := bufio.NewReader(main).ReadString('\n') // what was written in parts may be read in parts
	if err != nil {
		t.Fatal(err)
	}
	return said
}
