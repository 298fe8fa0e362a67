package cluster

import (
	"context"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/node"
)

// Options say how nodes are started.
type Options struct {
	DatabaseURL string   // of a database of the test's own; empty: Args say it
	Args        []string // more flags of `getwork serve`
	Env         []string // more of the environment, as NAME=value
}

// Node is one process of `getwork serve`. While one goroutine starts, ends or signals it, others may use its URL and
// Client.
type Node struct {
	*node.Node

	t testing.TB
}

// Start starts n nodes at the same time, and returns when all of them are ready. They are killed after the test;
// what they printed is logged if the test failed. A data race or a panic that a node reports fails the test.
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

// Stop freezes the process (SIGSTOP): its connections stay open, and nobody answers on them.
func (n *Node) Stop() { n.signal(syscall.SIGSTOP) }

// Cont lets it go on (SIGCONT).
func (n *Node) Cont() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(s os.Signal) {
	n.t.Helper()
	if err := n.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// Restart starts the node again, at the same address, after killing it if it still runs. It returns when the node
// is ready.
func (n *Node) Restart() {
	n.t.Helper()
	n.finish()
	if err := n.Start(context.Background()); err != nil {
		n.t.Fatal(err)
	}
}

// finish kills the process, and reports what it said.
func (n *Node) finish() {
	n.Kill()
	text := n.Output()
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

// Exit is the exit status that an error of [Node.Terminate] tells: 0 for nil, -1 for a signal.
func Exit(err error) int { return node.Exit(err) }

// Client asks this node as somebody.
func (n *Node) Client(user string) Client { return Client{URL: n.URL, User: user} }
