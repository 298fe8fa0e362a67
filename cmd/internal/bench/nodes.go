package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/cputime"
	"getwork/cmd/internal/node"
)

// start starts n more nodes, and returns when all are ready. flags are further flags of `getwork serve`.
func (s *stage) start(ctx context.Context, n int, flags ...string) error {
	o := node.Options{
		Binary: s.Binary,
		Args:   append([]string{"--log-level", "warn", "--schema", string(s.name)}, append(s.logIns.flags(), flags...)...),
		// Settings are not passed as flags: everybody on the machine can see those, and the URL may hold a password.
		Env: []string{"GETWORK_DATABASE_URL=" + s.DatabaseURL},
	}
	if s.queryURL != "" {
		o.Env = append(o.Env, "GETWORK_QUERY_DATABASE_URL="+s.queryURL)
	}
	var g errgroup.Group
	for range n {
		one := node.New(o)
		s.nodes = append(s.nodes, one)
		g.Go(func() error { return one.Start(ctx) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("start a node: %w", err)
	}
	return nil
}

// aboutLogin is in what a node says about the superuser of a private server. The only queries are the bench's own.
const aboutLogin = "the login has a right that a ranking query must not have"

// kill ends the nodes at once, and logs their complaints.
func (s *stage) kill() {
	for i, n := range s.nodes {
		if !n.Started() {
			continue
		}
		n.Kill()
		for line := range strings.Lines(n.Output()) {
			if !strings.HasPrefix(line, "listening on ") && !strings.Contains(line, aboutLogin) {
				s.log("node %d said: %s", i+1, strings.TrimSpace(line))
			}
		}
	}
	s.nodes = nil
}

// usage is the CPU time that the database and the nodes have used by some time; 0 if unknown.
type usage struct {
	at              time.Time
	database, nodes time.Duration
}

func (s *stage) usage() (usage, error) {
	u := usage{at: time.Now()}
	var err error
	if s.ServerPID != 0 {
		u.database, err = cputime.Server(s.ServerPID)
	}
	for _, n := range s.nodes {
		used, readErr := cputime.Process(n.PID())
		u.nodes, err = u.nodes+used, errors.Join(err, readErr)
	}
	if errors.Is(err, cputime.ErrUnknown) {
		err = nil
	}
	return u, err
}
