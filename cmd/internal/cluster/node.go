package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// startWithin is generous: a machine that runs many tests at once is slow.
const startWithin = time.Minute

// Options say how nodes are started.
type Options struct {
	DatabaseURL string   // of a database of the test's own; empty: Args say it
	Args        []string // more flags of `getwork serve`
	Env         []string // more of the environment, as NAME=value
}

// Node is one process of `getwork serve`. While one goroutine starts, ends or signals it, others may use its URL and
// Client.
type Node struct {
	URL string // such as http://127.0.0.1:41234; the same after a Restart

	t       testing.TB
	binary  string
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

// Start starts n nodes at the same time, and returns when all of them are ready. They are killed after the test;
// what they printed is logged if the test failed. A data race or a panic that a node reports fails the test.
func Start(t testing.TB, n int, options Options) []*Node {
	t.Helper()
	binary := Binary(t)
	nodes := make([]*Node, n)
	var g errgroup.Group
	for i := range nodes {
		nodes[i] = &Node{t: t, binary: binary, options: options}
		t.Cleanup(nodes[i].cleanUp)
		g.Go(func() error { return nodes[i].start("127.0.0.1:0") })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return nodes
}

func (n *Node) start(listen string) error {
	args := []string{"serve", "--until-stdin-closes", "--listen", listen}
	if n.options.DatabaseURL != "" {
		args = append(args, "--database-url", n.options.DatabaseURL)
	}
	command := exec.Command(n.binary, append(args, n.options.Args...)...)
	command.Env = append(environment(), n.options.Env...)
	if raceEnabled {
		command.Env = append(command.Env, "GORACE=atexit_sleep_ms=0") // or each exit takes a second longer
	}
	command.SysProcAttr = attributes()
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
	return n.awaitReady()
}

// environment is this process's without what would configure a node.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") && !strings.HasPrefix(e, "DATABASE_URL=") {
			env = append(env, e)
		}
	}
	return env
}

func (n *Node) awaitReady() error {
	deadline := time.NewTimer(startWithin)
	defer deadline.Stop()
	select {
	case url := <-n.life.out.url:
		if n.URL != url { // written once: others may read it during a Restart
			n.URL = url
		}
	case <-n.life.done:
		return fmt.Errorf("node ended at its start: %w\n%s", n.life.err, n.life.out)
	case <-deadline.C:
		return fmt.Errorf("node did not say where it listens within %v\n%s", startWithin, n.life.out)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n.Ready() != http.StatusOK {
		select {
		case <-tick.C:
		case <-n.life.done:
			return fmt.Errorf("node ended at its start: %w\n%s", n.life.err, n.life.out)
		case <-deadline.C:
			return fmt.Errorf("node was not ready within %v\n%s", startWithin, n.life.out)
		}
	}
	return nil
}

// Ready is the status that /readyz answers with, or 0: there was no answer within five seconds.
func (n *Node) Ready() int {
	client := http.Client{Transport: single, Timeout: 5 * time.Second}
	answer, err := client.Get(n.URL + "/readyz")
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// PID is the process's id.
func (n *Node) PID() int { return n.life.process.Pid }

// Output is what the present process printed so far.
func (n *Node) Output() string { return n.life.out.String() }

// Done is closed when the present process has ended.
func (n *Node) Done() <-chan struct{} { return n.life.done }

// Kill ends the process as kill -9 does, frozen or not, and returns when it is gone.
func (n *Node) Kill() {
	_ = n.life.process.Kill()
	<-n.life.done
}

// Stop freezes the process (SIGSTOP): its connections stay open, and nobody answers on them.
func (n *Node) Stop() { n.signal(syscall.SIGSTOP) }

// Cont lets it go on (SIGCONT).
func (n *Node) Cont() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(s os.Signal) {
	n.t.Helper()
	if err := n.life.process.Signal(s); err != nil {
		n.t.Fatalf("signal %v to node: %v", s, err)
	}
}

// Terminate asks the process to end (SIGTERM), waits until it has, and returns nil if its exit status was 0.
func (n *Node) Terminate() error {
	if err := n.life.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-n.life.done
	return n.life.err
}

// Restart starts the node again, at the same address, after killing it if it still runs. It returns when the node
// is ready.
func (n *Node) Restart() {
	n.t.Helper()
	n.finish()
	listen := strings.TrimPrefix(n.URL, "http://")
	if err := n.start(listen); err != nil {
		n.t.Fatal(err)
	}
}

// finish kills the process, and reports what it said.
func (n *Node) finish() {
	n.Kill()
	_ = n.life.stdin.Close()
	text := n.life.out.String()
	if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") || strings.Contains(text, "fatal error:") {
		n.t.Errorf("node %s reports a data race or a panic", n.URL)
	}
	if n.t.Failed() {
		n.t.Logf("node %s printed:\n%s", n.URL, text)
	}
}

func (n *Node) cleanUp() {
	if n.life != nil {
		n.finish()
	}
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

// Client asks this node as somebody.
func (n *Node) Client(user string) Client { return Client{URL: n.URL, User: user} }
