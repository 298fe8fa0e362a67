package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/bench/stage"
	"getwork/cmd/internal/node"
)

// rawWriters is how many goroutines write at the same time.
const rawWriters = 4

// rawCommand is the argument that makes a program the other end of the raw TCP limit.
const rawCommand = "__raw-tcp"

// RawPeer serves as the other end of the raw TCP limit, in a process of its own as a node is, if the arguments ask for it.
func RawPeer(args []string) (asked bool, err error) {
	if len(args) != 3 || args[0] != rawCommand {
		return false, nil
	}
	n, err1 := strconv.Atoi(args[1])
	size, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err1, err2); err != nil {
		return true, err
	}
	return true, rawTCP(os.Stdin, os.Stdout, n, size)
}

// rawTCP prints its address, accepts n connections, each with a goroutine that reads, and prints "ready". For each line that it
// reads it writes a message of that size to each connection. It ends when in does.
func rawTCP(in io.Reader, out io.Writer, n, size int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // its memory is compared with the current value, so memory left from the start must not be freed later
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	lines := make(chan string)
	go func() {
		defer l.Close()
		defer close(lines)
		for scan := bufio.NewScanner(in); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	conns, messages := make([]net.Conn, n), make([][]byte, n)
	for i := range conns {
		if conns[i], err = l.Accept(); err != nil {
			return err
		}
		defer func() { _ = conns[i].Close() }()
		messages[i] = make([]byte, size)
		go func() { _, _ = conns[i].Read(make([]byte, 1)) }() // until the other end closes
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	for range lines {
		var g errgroup.Group
		for part := range rawWriters {
			g.Go(func() (err error) {
				for i := part; i < n && err == nil; i += rawWriters {
					_, err = conns[i].Write(messages[i])
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// rawPeer is such a process, with connections to it.
type rawPeer struct {
	pid    int
	before float64 // KiB of memory before the first connection
	conns  []net.Conn
	in     io.Writer
}

// onRaw calls do with a process that has n connections, for messages of a size.
func onRaw(ctx context.Context, n, size int, do func(p *rawPeer) error) (err error) {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	ctx, end := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, rawCommand, strconv.Itoa(n), strconv.Itoa(size))
	cmd.Env, cmd.SysProcAttr = node.Environment(), node.Attributes()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		end()
		return fmt.Errorf("start the raw TCP server: %w", err)
	}
	p := &rawPeer{pid: cmd.Process.Pid, in: in, conns: make([]net.Conn, n)}
	defer func() {
		end()
		_ = cmd.Wait()
		for _, c := range p.conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return fmt.Errorf("the raw TCP server ended: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
	}
	address := lines.Text()
	p.before = resident(p.pid)
	err = many(ctx, p.conns, dialers, func(ctx context.Context, c *net.Conn) (err error) {
		*c, err = new(net.Dialer).DialContext(ctx, "tcp", address)
		return err
	})
	if err != nil {
		return fmt.Errorf("open %d raw TCP connections: %w", n, err)
	}
	if !lines.Scan() {
		return fmt.Errorf("the raw TCP server ended: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
	}
	return do(p)
}

// rawPush is the limit of telling n people something: each has a TCP connection, and gets a message of that size of
// their own. It returns how long it takes until the last has theirs.
func rawPush(ctx context.Context, n, size int) (took time.Duration, err error) {
	err = onRaw(ctx, n, size, func(p *rawPeer) error {
		times := make([]time.Time, n)
		var g errgroup.Group
		for i, c := range p.conns {
			_ = c.SetReadDeadline(time.Now().Add(stage.ServedWithin))
			g.Go(func() error {
				_, err := io.ReadFull(c, make([]byte, size))
				times[i] = time.Now()
				return err
			})
		}
		began := time.Now()
		if _, err := fmt.Fprintln(p.in, "send"); err != nil {
			return err
		}
		err := g.Wait()
		took = slices.MaxFunc(times, time.Time.Compare).Sub(began)
		return err
	})
	if err != nil {
		err = fmt.Errorf("push over raw TCP: %w", err)
	}
	return took, err
}

// fewestRaw is how many raw connections are needed to stand out from a process's own changes of memory: they take 3
// MiB, while its collector and the system add or free up to 1.
const fewestRaw = 1_000

// rawMemory is the limit of memory: what a bare connection costs, in KiB, with at least n of them.
func rawMemory(ctx context.Context, e *stage.Env, n int) (kib float64, err error) {
	n = max(n, fewestRaw)
	err = onRaw(ctx, n, 0, func(p *rawPeer) error {
		stage.Sleep(ctx, settle(e))
		kib = (resident(p.pid) - p.before) / float64(n)
		return nil
	})
	return kib, err
}
