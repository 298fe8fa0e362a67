package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"getwork/cmd/internal/serve"
)

const (
	nodeReadyWithin = 30 * time.Second
	nodeEndsWithin  = 20 * time.Second // a little more than a node allows itself
)

// nodeProcess is one node of a demo. It is a process of this program that ends when its standard input is closed, which
// the kernel does however the demo dies.
type nodeProcess struct {
	url    string // such as http://127.0.0.1:8080
	name   string // the id by which runs name it; empty: unknown
	cmd    *exec.Cmd
	said   lastWords
	done   chan struct{} // closed when the process is gone and all its output was read
	killed atomic.Bool   // somebody ended it on purpose
}

// startNode starts a node and returns when it is ready. If it fails, or ctx ends first, no process is left.
func (f *fleet) startNode(ctx context.Context, address string) (*nodeProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's file: %w", err)
	}
	n := &nodeProcess{done: make(chan struct{})}
	// Not exec.CommandContext, which would kill the node at the demo's end: the node is asked to drain.
	n.cmd = exec.Command(program, "serve", "--until-stdin-closes", "--listen", address, "--database-url", f.database,
		"--drain-timeout", "4s", // a browser's kept connections hold up a node's end for half of it
		"--query-role", serve.QueryRole, "--frame-ancestors", f.framedBy, "--log-level", "warn")
	if f.identity != nil {
		n.cmd.Args = append(append(n.cmd.Args, "--public-url", "http://"+address), f.identity...)
	}
	n.cmd.Env = nodeEnvironment()
	n.cmd.SysProcAttr = apart()
	n.cmd.WaitDelay = 5 * time.Second
	found := &addressFinder{lastWords: &n.said, url: make(chan string, 1)}
	n.cmd.Stdout, n.cmd.Stderr = found, found
	if _, err := n.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	go func() {
		_ = n.cmd.Wait() // its output says more than its exit status
		close(n.done)
	}()
	if err := n.awaitReady(ctx, found.url); err != nil {
		n.kill()
		return nil, err
	}
	return n, nil
}

// nodeEnvironment returns this process's environment without the variables that configure getwork or PostgreSQL's
// clients: only flags configure the demo's nodes. OTEL_… stay, so that a collector shows the demo's traces.
func nodeEnvironment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") && !strings.HasPrefix(e, "DATABASE_URL=") && !strings.HasPrefix(e, "PG") {
			env = append(env, e)
		}
	}
	return env
}

func (n *nodeProcess) awaitReady(ctx context.Context, url <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, nodeReadyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n.url == "" || !n.ready(ctx) {
		select {
		case n.url = <-url:
		case <-tick.C:
		case <-n.done:
			return fmt.Errorf("it ended while starting:\n%s", n.said.String())
		case <-ctx.Done():
			return fmt.Errorf("it was not ready in time: %w\n%s", ctx.Err(), n.said.String())
		}
	}
	return nil
}

func (n *nodeProcess) ready(ctx context.Context) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/readyz", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// stop asks the node to drain and returns when it is gone; when hurry ends it kills the node.
func (n *nodeProcess) stop(hurry context.Context) {
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	patience := time.NewTimer(nodeEndsWithin)
	defer patience.Stop()
	select {
	case <-n.done:
		return
	case <-hurry.Done():
	case <-patience.C:
	}
	n.kill()
}

func (n *nodeProcess) kill() {
	_ = n.cmd.Process.Kill()
	<-n.done
}

// ended reports whether the process is gone.
func (n *nodeProcess) ended() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// areFree returns an error for an address in use, before time is spent on making the bank.
func areFree(ctx context.Context, addresses []string) error {
	for _, address := range addresses {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("%s is in use: end the program that serves there, or choose other ports with --listen, such as --listen 127.0.0.1:0 for free ones", address)
		case err != nil:
			return fmt.Errorf("listen on %s: %w; choose another address with --listen", address, err)
		}
		_ = l.Close()
	}
	return nil
}

// lastWords keeps the end of a process's output.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

const keptWords = 2 << 10

func (l *lastWords) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if over := len(l.text) - keptWords; over > 0 {
		l.text = append(l.text[:0], l.text[over:]...)
	}
	return len(p), nil
}

// String returns what was kept, from the beginning of a line.
func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := string(l.text)
	if _, rest, cut := strings.Cut(text, "\n"); cut && len(text) == keptWords {
		text = rest
	}
	if text = strings.TrimSpace(text); text == "" {
		return "(nothing)"
	}
	return text
}

// addressFinder finds the node's address in its output. A single goroutine writes to it.
type addressFinder struct {
	*lastWords
	line  string // the last line, while it is incomplete
	found bool
	url   chan string // receives the address, once; has room for it
}

func (a *addressFinder) Write(p []byte) (int, error) {
	if !a.found {
		a.line += string(p)
	}
	for !a.found {
		line, rest, whole := strings.Cut(a.line, "\n")
		if !whole {
			break
		}
		a.line = rest
		if url, ok := strings.CutPrefix(line, "listening on "); ok {
			a.found = true
			a.url <- url
		}
	}
	return a.lastWords.Write(p)
}
