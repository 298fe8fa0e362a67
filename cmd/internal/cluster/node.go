package cluster

import (
	"context"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/node"
)

// Options are the settings of nodes.
type Options struct {
	DatabaseURL string   // a database of the test's own; empty: Args name it
	Args        []string // further flags of `getwork serve`
	Env         []string // further environment variables, as NAME=value
}

// Node is a process of `getwork serve`. While one goroutine starts, ends or signals it, others may use its URL and
// Client.
type Node struct {
	*node.Node

	t testing.TB
}

// Start starts n nodes at the same time, and returns when all are ready. They are killed after the test; their output
// is logged if the test failed. A data race or a panic in a node fails the test, and so does a process that ends with
// another status than 0: nodes that must fail are started with package node.
func Start(t testing.TB, n int, options Options) []*Node {
	t.Helper()
	binary := Binary(t)
	nodes := make([]*Node, n)
	var g errgroup.Group
	for i := range nodes {
		nodes[i] = &Node{t: t, Node: node.New(node.Options{Binary: binary, DatabaseURL: options.DatabaseURL, Args: options.Args, Env: options.Env})}
		t.Cleanup(nodes[i].cleanUp)
		g.Go(func() error { return nodes[i].Start(context.Background()) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// Stop freezes the process (SIGSTOP): its connections stay open, but nothing answers on them.
func (n *Node) Stop() { n.signal(syscall.SIGSTOP) }

// Cont lets the process go on (SIGCONT).
func (n *Node) Cont() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(s os.Signal) {
	n.t.Helper()
	if err := n.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// Restart kills the node if it runs, and starts it again at the same address. It returns when the node is ready.
func (n *Node) Restart() {
	n.t.Helper()
	n.finish()
	if err := n.Start(context.Background()); err != nil {
		n.t.Fatal(err)
	}
}

// finish kills the process, and reports its faults. One that was killed has no exit status.
func (n *Node) finish() {
	n.Kill()
	text := n.Output()
	if status := node.Exit(n.Err()); status > 0 {
		n.t.Errorf("node %s ended with status %d", n.URL, status)
	}
	if node.Complaint(text) != "" {
		n.t.Errorf("node %s reports a data race or a panic", n.URL)
	}
	if n.t.Failed() {
		n.t.Logf("node %s printed:\n%s", n.URL, text)
	}
}

func (n *Node) cleanUp() {
	if n.Started() {
		n.finish()
	}
}

// Exit returns the exit status in an error of [Node.Terminate]: 0 for nil, -1 for a signal.
func Exit(err error) int { return node.Exit(err) }

// Client returns a client of this node for a user.
func (n *Node) Client(user string) Client { return Client{URL: n.URL, User: user} }
