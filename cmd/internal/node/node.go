// Package node runs `getwork serve` as a process of its own, for whatever breaks nodes or loads them: it can be killed,
// frozen and started again at the same address. Tests have package cluster around it.
//
// No node outlives the process that started it, not even while it is frozen, nor if that one is killed with -9.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// StartWithin is how long a node may take until it is ready, if the context does not say less. It is generous: a machine
// that runs many at once is slow.
const StartWithin = time.Minute

// probe connects anew for each call, so that a node that died is noticed at once, and nothing is left open.
var probe = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// Options say how a node is started.
type Options struct {
	Binary      string   // the path of getwork, see [Build]
	DatabaseURL string   // empty: Args or Env say it
	Args        []string // more flags of `getwork serve`
	Env         []string // more of the environment, as NAME=value
}

// Node is one node, whichever process that is at the moment. While one goroutine starts or ends it, others may use its
// URL.
type Node struct {
	URL string // such as http://127.0.0.1:41234; the same for each start

	options Options
	life    *life
}

// life is one process.
type life struct {
	process *os.Process
	stdin   io.Closer
	out     *output
	err     error         // how it ended; set before done is closed
	done    chan struct{} // closed when the process is gone, and all that it printed was read
}

// New is a node that is not started yet.
func New(o Options) *Node { return &Node{options: o} }

// Use has the next start run another binary.
func (n *Node) Use(binary string) { n.options.Binary = binary }

// Start starts the process, at the address that it had before if there was one, and returns when it is ready. After an
// error a process may be left: Kill it.
func (n *Node) Start(ctx context.Context) error {
	if err := n.Launch(); err != nil {
		return err
	}
	return n.AwaitReady(ctx)
}

// Launch starts the process, and waits for nothing. One that still runs must be ended before.
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
	command.Env = append(Environment(), "GORACE=atexit_sleep_ms=0") // or each exit with the race detector takes a second longer
	command.Env = append(command.Env, n.options.Env...)
	command.SysProcAttr = Attributes()
	life := &life{out: newOutput(), done: make(chan struct{})}
	command.Stdout, command.Stderr = life.out, life.out
	stdin, err := command.StdinPipe()
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	life.stdin = stdin
	started := make(chan error)
	go func() {
		// The kernel kills the process when the thread that started it ends. This one lasts until the process is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		life.process = command.Process
		started <- err
		if err == nil {
			life.err = command.Wait()
		}
		close(life.done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	n.life = life
	return nil
}

// Environment is this process's without what would configure a node. PG… stays: a URL may count on it.
func Environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") && !strings.HasPrefix(e, "DATABASE_URL=") {
			env = append(env, e)
		}
	}
	return env
}

// AwaitReady waits until a node that was launched serves.
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
			if n.URL != url { // written once: others may read it later
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

// Ready is the status that /readyz answers with, or 0: there was no answer within five seconds.
func (n *Node) Ready() int {
	answer, err := probe.Get(n.URL + "/readyz")
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// Started tells whether there is, or was, a process.
func (n *Node) Started() bool { return n.life != nil }

// PID is the process's id.
func (n *Node) PID() int { return n.life.process.Pid }

// Output is what the present process printed so far, or the last one did.
func (n *Node) Output() string { return n.life.out.String() }

// Done is closed when the present process has ended.
func (n *Node) Done() <-chan struct{} { return n.life.done }

// Kill ends the process as kill -9 does, frozen or not, and returns when it is gone.
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

// Terminate asks the process to end (SIGTERM), waits until it has, and returns nil if its exit status was 0.
func (n *Node) Terminate() error {
	if err := n.life.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-n.life.done
	return n.life.err
}

// Err is how the last process ended: nil for an exit status of 0. It is for after Done.
func (n *Node) Err() error { return n.life.err }

// Complaint is the data race or the panic that what a node printed tells of, or empty.
func Complaint(output string) string {
	for _, sign := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if at := strings.Index(output, sign); at >= 0 {
			return output[at:]
		}
	}
	return ""
}

// Exit is the exit status that an error of [Node.Terminate] tells: 0 for nil, -1 for a signal.
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
