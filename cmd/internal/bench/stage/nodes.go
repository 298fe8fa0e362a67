package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/cputime"
	"getwork/cmd/internal/node"
)

// Start starts n more nodes, and returns when all are ready. flags are further flags of `getwork serve`.
func (s *Stage) Start(ctx context.Context, n int, flags ...string) error {
	o := node.Options{
		Binary: s.Binary,
		Args:   slices.Concat([]string{"--log-level", "warn", "--schema", string(s.Name)}, s.NodeFlags, flags),
		// Settings are not passed as flags: everybody on the machine can see those, and the URL may hold a password.
		Env: []string{"GETWORK_DATABASE_URL=" + s.DatabaseURL},
	}
	if s.QueryURL != "" {
		o.Env = append(o.Env, "GETWORK_QUERY_DATABASE_URL="+s.QueryURL)
	}
	var g errgroup.Group
	for range n {
		one := node.New(o)
		s.Nodes = append(s.Nodes, one)
		g.Go(func() error { return one.Start(ctx) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("start a node: %w", err)
	}
	return nil
}

// aboutLogin is in what a node says about the superuser of a private server. The only queries are the bench's own.
const aboutLogin = "the login has a right that a ranking query must not have"

// Kill ends the nodes at once, and logs their complaints.
func (s *Stage) Kill() {
	for i, n := range s.Nodes {
		if !n.Started() {
			continue
		}
		n.Kill()
		for line := range strings.Lines(n.Output()) {
			if !strings.HasPrefix(line, "listening on ") && !strings.Contains(line, aboutLogin) {
				s.Logf("node %d said: %s", i+1, strings.TrimSpace(line))
			}
		}
	}
	s.Nodes = nil
}

// Usage is the CPU time that the database and the nodes have used by some time; 0 if unknown.
type Usage struct {
	At              time.Time
	Database, Nodes time.Duration
}

// Usage reads the CPU time that was used so far.
func (s *Stage) Usage() (Usage, error) {
	u := Usage{At: time.Now()}
	var err error
	if s.ServerPID != 0 {
		u.Database, err = cputime.Server(s.ServerPID)
	}
	for _, n := range s.Nodes {
		used, readErr := cputime.Process(n.PID())
		u.Nodes, err = u.Nodes+used, errors.Join(err, readErr)
	}
	if errors.Is(err, cputime.ErrUnknown) {
		err = nil
	}
	return u, err
}
