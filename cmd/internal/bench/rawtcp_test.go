package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"getwork/cmd/internal/cluster"
)

// Each connection gets a message of its own, when it is told to, and of the size that was asked for.
func TestRawTCP(t *testing.T) {
	commands, in := io.Pipe()
	out, answers := io.Pipe()
	ended := make(chan error)
	go func() { ended <- RawTCP(t.Context(), commands, answers) }()
	scan := bufio.NewScanner(out)
	read := func() string {
		scan.Scan()
		return scan.Text()
	}
	addr := read()
	const n, size = 9, 50
	var conns []net.Conn
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	for _, command := range []string{fmt.Sprint("await ", n), fmt.Sprint("fill ", size), "send"} {
		fmt.Fprintln(in, command)
		if got := read(); got != "ok" {
			t.Fatalf("%s is answered %q", command, got)
		}
	}
	messages := make([][]byte, n)
	for i, c := range conns {
		messages[i] = make([]byte, size)
		if _, err := io.ReadFull(c, messages[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := differ(messages); err != nil {
		t.Error(err)
	}
	in.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, c := range conns {
		if rest, _ := io.ReadAll(c); len(rest) > 0 {
			t.Errorf("%q came behind a message", rest)
		}
	}
}

// It ends when it is told to, also while it waits for connections, and refuses what it does not know.
func TestRawTCPEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	commands, in := io.Pipe()
	defer in.Close()
	ended := make(chan error)
	go func() { ended <- RawTCP(ctx, commands, io.Discard) }()
	fmt.Fprintln(in, "await 5")
	fmt.Fprintln(in, "send") // is read when the other is being carried out
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := RawTCP(t.Context(), bytes.NewBufferString("dance\n"), io.Discard); err == nil {
		t.Error("it dances")
	}
}

func TestDiffer(t *testing.T) {
	if err := differ([][]byte{rawMessage(1, 20), rawMessage(2, 20), rawMessage(1, 20)}); err == nil {
		t.Error("the same message came twice, and was not noticed")
	}
}

func TestRawPush(t *testing.T) {
	t.Parallel()
	e := &Env{Binary: cluster.Binary(t), Log: t.Logf}
	took, err := e.rawPush(t.Context(), 20, 300)
	if err != nil || took <= 0 {
		t.Errorf("%v, %v", took, err)
	}
}
