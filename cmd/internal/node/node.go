// Package node runs `getwork serve` as a process of its own, for programs that break nodes or load them: a node can be
// killed, frozen and started again at the same address. Tests use package cluster, which is built on this one.
//
// No node outlives the process that started it, not even a frozen node whose parent is killed with -9.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// StartWithin is how long a node may take until it is ready, unless the context ends earlier. It is generous, because a
// machine that runs many nodes at once is slow.
const StartWithin = time.Minute

// probe makes a new connection for each call, so that a node's death is noticed at once and no connection stays open.
var probe = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// Options are the settings of a node's process.
type Options struct {
	Binary      string   // the path of getwork, see [Build]
	DatabaseURL string   // empty: Args or Env set it
	Args        []string // further flags of `getwork serve`
	Env         []string // further environment variables, as NAME=value
}

// Node is one node; each start gives it a new process. While one goroutine starts or ends it, others may use its URL.
type Node struct {
	URL string // such as http://127.0.0.1:41234; the same for each start

	options Options
	life    *life
}

// life is one process of a node.
type life struct {
	process *os.Process
	stdin   io.Closer
	out     *output
	err     error         // the process's exit; set before done is closed
	done    chan struct{} // closed when the process is gone and all its output was read
}

// New returns a node that is not started yet.
func New(o Options) *Node { return &Node{options: o} }

// Use sets the binary that the next start runs.
func (n *Node) Use(binary string) { n.options.Binary = binary }

// Start starts the process, at its former address if it had one, and returns when the node is ready. If it returns an
// error, a process may be left: Kill it.
func (n *Node) Start(ctx context.Context) error {
	if err := n.Launch(); err != nil {
		return err
	}
	return n.AwaitReady(ctx)
}

// Launch starts the process without waiting for it. A process that still runs must be ended first.
func (n *Node) Launch() error {
	listen := "127.0.0.1:0"
	if n.URL != "" {
		listen = strings.TrimPrefix(n.URL, "http://")
	}
	args := []string{"serve", "--until-stdin-closes", "--listen", listen}
	if n.options.DatabaseURL != "" {
		args = append(args, "--database-url", n.options.DatabaseURL)
	}
	command := exec.Command(n.options.Binary, append(args, n.options.Args...)...)
	command.Env = append(Environment(), "GORACE=atexit_sleep_ms=0") // without it, each exit with the race detector takes a second longer
	command.Env = append(command.Env, n.options.Env...)
	life := &life{out: newOutput(), done: make(chan struct{})}
	command.Stdout, command.Stderr = life.out, life.out
	stdin, err := command.StdinPipe()
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	life.stdin = stdin
	err = Tie(command, func(err error) {
		life.err = err
		close(life.done)
	})
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	life.process, n.life = command.Process, life
	return nil
}

// Environment returns this process's environment without the variables that configure a node or its traces. PG… variables
// stay, because a URL may rely on them.
func Environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") && !strings.HasPrefix(e, "OTEL_") && !strings.HasPrefix(e, "DATABASE_URL=") {
			env = append(env, e)
		}
	}
	return env
}

// AwaitReady waits until a launched node serves. It returns an error if the process ends, or ctx ends first.
func (n *Node) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StartWithin)
	defer cancel()
	life := n.life
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for told := false; !told || n.Ready() != http.StatusOK; {
		select {
		case url := <-life.out.url:
			told = true
			if n.URL != url { // written once, since other goroutines may read it later
				n.URL = url
			}
		case <-tick.C:
		case <-life.done:
			return fmt.Errorf("node ended at its start: %w\n%s", life.err, life.out)
		case <-ctx.Done():
			return fmt.Errorf("node was not ready in time: %w\n%s", ctx.Err(), life.out)
		}
	}
	return nil
}

// Ready returns the status of /readyz, or 0 if no answer came within five seconds.
func (n *Node) Ready() int {
	answer, err := probe.Get(n.URL + "/readyz")
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// Started reports whether the node has, or had, a process.
func (n *Node) Started() bool { return n.life != nil }

// PID returns the process's id.
func (n *Node) PID() int { return n.life.process.Pid }

// Output returns what the current or last process has printed so far.
func (n *Node) Output() string { return n.life.out.String() }

// Done returns a channel that is closed when the current process has ended.
func (n *Node) Done() <-chan struct{} { return n.life.done }

// Kill ends the process as kill -9 does, even a frozen one, and returns when it is gone.
func (n *Node) Kill() {
	_ = n.life.process.Kill()
	<-n.life.done
	_ = n.life.stdin.Close()
}

// Signal sends the process a signal, such as SIGSTOP.
func (n *Node) Signal(s os.Signal) error {
	if err := n.life.process.Signal(s); err != nil {
		return fmt.Errorf("signal %v to node: %w", s, err)
	}
	return nil
}

// Terminate asks the process to end (SIGTERM) and waits until it has. It returns nil if the exit status was 0; see
// [Exit].
func (n *Node) Terminate() error {
	if err := n.life.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-n.life.done
	return n.life.err
}

// Err returns how the last process ended: nil for exit status 0. Call it after Done is closed.
func (n *Node) Err() error { return n.life.err }

// Complaint returns the part of a node's output that begins with a data race or a panic, or "" if there is none.
func Complaint(output string) string {
	for _, sign := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if at := strings.Index(output, sign); at >= 0 {
			return output[at:]
		}
	}
	return ""
}

// Exit returns the exit status in an error of [Node.Terminate]: 0 for nil, -1 for a signal.
func Exit(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}
