// Package demo runs a whole bank: a private PostgreSQL, several nodes, and a page that shows the nodes side by side.
package demo

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"getwork/cmd/internal/command"
	"getwork/cmd/internal/serve"
)

// Command runs a whole bank on this machine: a private PostgreSQL with the sample bank, and several nodes.
type Command struct {
	Nodes   *int          `help:"How many node processes to run (default 3; with --auth oidc 4, one for each person)." placeholder:"N"`
	Auth    string        `help:"How people say who they are: dev, by their names alone, or oidc, by logging in at an identity provider that the demo starts." default:"dev" enum:"dev,oidc" placeholder:"dev|oidc"`
	Listen  string        `help:"The first node's address; the other nodes and the demo's page get the ports after it. With port 0 each gets a free port." default:"127.0.0.1:8080"`
	Loans   int           `help:"How many loans the bank has, with about 360 transactions each. Another number makes a new bank." default:"6000"`
	Heavier bool          `help:"Give the first task a query of more than 30 s instead of some seconds."`
	DataDir string        `help:"Where PostgreSQL keeps its data; the default is above." placeholder:"DIR" call:""`
	Reset   bool          `help:"First drop the data of earlier demos: the bank, its tasks and what people did. Refused while a demo uses it."`
	Naive   bool          `help:"Instead of serving, compare: each user first runs their own query; then the same users click on the nodes."`
	Users   int           `group:"With --naive:" help:"How many users click." default:"20"`
	Within  time.Duration `group:"With --naive:" help:"The time over which the clicks are spread." default:"3s"`
	Count   int           `group:"With --naive:" help:"How many items each user wants." default:"3"`
}

// Help returns the text that --help adds.
func (Command) Help() string {
	return `The command prints the address of a page that shows people on the nodes side by side, and can let fifty click at once.

With --auth oidc people log in: as Oliver, Tracy, their manager Mia, or Ada, who manages people and their sessions.

The first start makes the bank, which takes some five seconds on two cores; later starts use it again. Its data, about 400 MB, is kept in ` + defaultDemoDir() + `, or in --data-dir. --reset begins with new data. Delete that folder to remove it.

Nothing can be reached from outside: the nodes serve on a loopback address, PostgreSQL on a Unix socket. Ctrl-C stops everything; a second Ctrl-C does not wait for open work.`
}

func (c Command) check() error {
	switch {
	case c.nodes() < 1 || c.nodes() > 20:
		return command.Usage("--nodes must be from 1 to 20, not %d", c.nodes())
	case c.Loans < 10 || c.Loans > 1_000_000:
		return command.Usage("--loans must be from 10 to 1000000, not %d", c.Loans)
	case c.Users < 1 || c.Users > 200:
		return command.Usage("--users must be from 1 to 200, not %d", c.Users)
	case c.Within < 0 || c.Within > time.Minute:
		return command.Usage("--within must be from 0s to 1m, not %s", c.Within)
	case !c.Naive && (c.Users != 20 || c.Within != 3*time.Second || c.Count != 3):
		return command.Usage("--users, --within and --count belong to --naive; add it, or leave them out")
	case c.Count < 1 || c.Count > 5:
		return command.Usage("--count must be from 1 to 5, not %d", c.Count)
	case c.Naive && c.logsIn():
		return command.Usage("--naive compares two ways to hand out work, and nobody logs in; leave out --auth")
	case c.logsIn() && !strings.HasPrefix(c.Listen, "127.0.0.1:"):
		return command.Usage("with --auth oidc, --listen must be 127.0.0.1 and a port, such as 127.0.0.1:8080; not %q: nodes and identity provider are reached by that name", c.Listen)
	}
	// Report what a node would refuse before the bank is made.
	node := serve.Command{DatabaseURL: "postgres://", Listen: c.Listen, Identity: serve.Identity{Auth: "dev"}, MaxRuns: 1, MaxCalls: 1, MaxSockets: 1, DrainTimeout: time.Second, Retention: 90 * 24 * time.Hour}
	if err := node.Check(); err != nil {
		return err
	}
	_, err := c.addresses()
	return err
}

// logsIn reports whether people log in at an identity provider.
func (c Command) logsIn() bool { return c.Auth == "oidc" }

// nodes returns how many nodes to run.
func (c Command) nodes() int {
	switch {
	case c.Nodes != nil:
		return *c.Nodes
	case c.logsIn():
		return 4
	}
	return 3
}

// addresses returns the nodes' addresses, or a usage error.
func (c Command) addresses() ([]string, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, command.Usage("--listen must be HOST:PORT, such as 127.0.0.1:8080: %v", err)
	}
	first, err := strconv.Atoi(port)
	if err != nil || first < 0 || first > 65535 || first > 0 && first+c.nodes()-1 > 65535 {
		return nil, command.Usage("--listen needs a port from 1 to %d for %d nodes, or 0 for free ones; not %q", 65536-c.nodes(), c.nodes(), port)
	}
	addresses := make([]string, c.nodes())
	for i := range addresses {
		next := first
		if first > 0 {
			next += i
		}
		addresses[i] = net.JoinHostPort(host, strconv.Itoa(next))
	}
	return addresses, nil
}

// Run runs the demo until ctx ends or, with --naive, until the comparison is printed.
func (c Command) Run(ctx context.Context, s *command.Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.DataDir == "" {
		c.DataDir = defaultDemoDir()
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return command.Usage("--data-dir: %v", err)
	}
	hurry, unhurried := onSecondSignal()
	defer unhurried()
	d := &demo{Command: c, out: s.Out, progress: newProgress(s.RawErrs), hurry: hurry}
	err = d.run(ctx)
	return errors.Join(err, d.stop())
}
