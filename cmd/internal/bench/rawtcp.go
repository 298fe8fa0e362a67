package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/node"
)

// rawWriters is how many goroutines write at the same time.
const rawWriters = 4

// RawTCP is the other end of the raw TCP limit, in a process of its own as a node is: it holds connections, and writes
// each a message of its own when it is told to. It prints its address, and then carries out what it reads, line by
// line, answering each with "ok": "await N" connections, "fill SIZE" makes messages, "send" writes them. It ends when
// in does, or ctx.
func RawTCP(ctx context.Context, in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &rawServer{arrived: sync.NewCond(&sync.Mutex{})}
	s.working.Go(func() { s.accept(l) })
	defer func() {
		_ = l.Close()
		s.close()
	}()
	stop := context.AfterFunc(ctx, s.close)
	defer stop()

	lines := make(chan string)
	go func() { // not waited for: nothing ends the reading of a standard input
		defer close(lines)
		for scan := bufio.NewScanner(in); scan.Scan(); {
			select {
			case lines <- scan.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	debug.FreeOSMemory() // its memory is compared with what it is now: what the program left behind is not to go later
	answer := l.Addr().String()
	for {
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case line, more := <-lines:
			if !more {
				return nil
			}
			if err := s.obey(line); err != nil {
				return err
			}
			answer = "ok"
		}
	}
}

// rawServer holds connections, and for each a goroutine that reads, as any server does.
type rawServer struct {
	working sync.WaitGroup

	arrived  *sync.Cond
	conns    []net.Conn
	closed   bool
	messages [][]byte // of the same index as conns
}

func (s *rawServer) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.arrived.L.Lock()
		if s.closed {
			_ = conn.Close()
		}
		s.conns = append(s.conns, conn)
		s.arrived.L.Unlock()
		s.arrived.Broadcast()
		s.working.Go(func() {
			var b [1]byte
			_, _ = conn.Read(b[:])
			_ = conn.Close()
		})
	}
}

func (s *rawServer) close() {
	s.arrived.L.Lock()
	s.closed = true
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.arrived.L.Unlock()
	s.arrived.Broadcast()
	s.working.Wait()
}

func (s *rawServer) obey(line string) error {
	verb, argument, _ := strings.Cut(line, " ")
	n, _ := strconv.Atoi(argument)
	s.arrived.L.Lock()
	defer s.arrived.L.Unlock()
	switch verb {
	case "await":
		for len(s.conns) < n && !s.closed {
			s.arrived.Wait()
		}
		return nil
	case "fill":
		s.messages = make([][]byte, len(s.conns))
		for i := range s.messages {
			s.messages[i] = rawMessage(i, n)
		}
		return nil
	case "send":
		return s.send()
	}
	return fmt.Errorf("there is no command %q", line)
}

// rawMessage is one that no other connection gets.
func rawMessage(i, size int) []byte {
	m := bytes.Repeat([]byte{'.'}, max(size, rawNumber))
	copy(m, fmt.Sprintf("%0*d", rawNumber, i))
	return m
}

// rawNumber is how long the part of a message is that tells it from the others.
const rawNumber = 8

func (s *rawServer) send() error {
	var g errgroup.Group
	for part := range rawWriters {
		g.Go(func() error {
			for i := part; i < len(s.conns); i += rawWriters {
				if _, err := s.conns[i].Write(s.messages[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// rawPeer is such a process.
type rawPeer struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	addr string
}

// startRaw starts one. It ends with this process: then its standard input ends.
func (e *Env) startRaw(ctx context.Context) (*rawPeer, error) {
	p := &rawPeer{cmd: exec.CommandContext(ctx, e.Binary, "__raw-tcp")}
	p.cmd.Env = node.Environment()
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the raw TCP server: %w", err)
	}
	if p.addr, err = p.answer(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *rawPeer) answer() (string, error) {
	if !p.out.Scan() {
		return "", fmt.Errorf("the raw TCP server ended: %w", errors.Join(p.out.Err(), io.ErrUnexpectedEOF))
	}
	return p.out.Text(), nil
}

// tell has it carry out a command.
func (p *rawPeer) tell(command string, args ...any) error {
	if _, err := fmt.Fprintf(p.in, command+"\n", args...); err != nil {
		return fmt.Errorf("tell the raw TCP server: %w", err)
	}
	_, err := p.answer()
	return err
}

func (p *rawPeer) stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// connect opens n connections to it, and returns when it has accepted them.
func (p *rawPeer) connect(ctx context.Context, n int) ([]net.Conn, error) {
	conns := make([]net.Conn, n)
	err := dialAll(ctx, n, func(int) string { return p.addr }, func(_ context.Context, i int, c net.Conn) error {
		conns[i] = c
		return nil
	})
	if err == nil {
		err = p.tell("await %d", n)
	}
	if err != nil {
		closeAll(conns)
		return nil, fmt.Errorf("open %d raw TCP connections: %w", n, err)
	}
	return conns, nil
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}

// rawPush is the limit of telling n people something: each has a TCP connection, and gets a message of that size which
// nobody else gets. It returns how long it takes until the last has his.
func (e *Env) rawPush(ctx context.Context, n, size int) (time.Duration, error) {
	size = max(size, rawNumber)
	peer, err := e.startRaw(ctx)
	if err != nil {
		return 0, err
	}
	defer peer.stop()
	conns, err := peer.connect(ctx, n)
	if err != nil {
		return 0, err
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer closeAll(conns)
	all, broken := newLatch(n), make(chan error, n)
	messages, times := make([][]byte, n), make([]time.Time, n)
	for i, c := range conns {
		messages[i] = make([]byte, size)
		reading.Go(func() {
			if _, err := io.ReadFull(c, messages[i]); err != nil {
				broken <- fmt.Errorf("read from raw TCP: %w", err)
				return
			}
			times[i] = time.Now()
			all.down()
		})
	}
	if err := peer.tell("fill %d", size); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := peer.tell("send"); err != nil {
		return 0, err
	}
	if err := all.wait(ctx, broken, time.Minute, "told over raw TCP"); err != nil {
		return 0, err
	}
	if err := differ(messages); err != nil {
		return 0, err
	}
	return slices.MaxFunc(times, time.Time.Compare).Sub(began), nil
}

// differ says so if two messages are the same.
func differ(messages [][]byte) error {
	seen := map[string]bool{}
	for _, m := range messages {
		number := string(m[:rawNumber])
		if seen[number] {
			return fmt.Errorf("raw TCP: message %s came twice", number)
		}
		seen[number] = true
	}
	return nil
}
