package measure

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
)

// When a line asks for it, each connection gets one message of the requested size and nothing after it.
func TestRawTCP(t *testing.T) {
	t.Parallel()
	commands, in := io.Pipe()
	out, answers := io.Pipe()
	ended := make(chan error, 1)
	const n, size = 9, 50
	go func() { ended <- rawTCP(commands, answers, n, size) }()
	said := bufio.NewScanner(out)
	said.Scan()
	var conns []net.Conn
	for range n {
		c, err := net.Dial("tcp", said.Text())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	if said.Scan(); said.Text() != "ready" {
		t.Fatalf("it says %q", said.Text())
	}
	fmt.Fprintln(in, "send")
	for _, c := range conns {
		if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, c := range conns {
		if rest, _ := io.ReadAll(c); len(rest) > 0 {
			t.Errorf("%q came after a message", rest)
		}
	}
}

// It ends when its standard input does, even while it waits for connections.
func TestRawTCPEnds(t *testing.T) {
	t.Parallel()
	commands, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- rawTCP(commands, io.Discard, 5, 1) }()
	in.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestRawPush(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("measures a process: not with -short")
	}
	if took, err := rawPush(t.Context(), 20, 300); err != nil || took <= 0 {
		t.Errorf("%v, %v", took, err)
	}
}
