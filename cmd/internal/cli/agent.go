package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
	"getwork/ws/agent"
	api "getwork/ws/client"
)

// AgentCmd takes work and runs a program for each item.
type AgentCmd struct {
	Task         string        `arg:"" help:"The task to take work from; getwork task list lists the tasks."`
	Program      []string      `arg:"" help:"The program to run for each item, and its arguments, after --."`
	Concurrency  int           `help:"How many items to work on at the same time." default:"2" placeholder:"N"`
	Lease        time.Duration `help:"How long an item is held before it goes back, if the task sets no lease; it is extended while PROGRAM runs." default:"30s"`
	Timeout      time.Duration `help:"Stop PROGRAM after this long and count the attempt as failed; 0s means never." default:"0s"`
	KillAfter    time.Duration `help:"How long PROGRAM has to end after SIGTERM, before SIGKILL." default:"10s"`
	DrainTimeout time.Duration `help:"How long running programs may go on after SIGTERM or Ctrl-C, before they are stopped and their work goes back." default:"30s"`
	Once         bool          `help:"Exit when nothing is left to take, instead of waiting for more."`

	URL       string             `group:"Which node, and who asks:" help:"The node to ask; any node will do." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Token     string             `group:"Which node, and who asks:" help:"API token, which identifies the user. Every user of this machine can read it in the list of processes; --token-file and GETWORK_TOKEN show it to nobody." placeholder:"TOKEN"`
	TokenFile command.SecretFile `group:"Which node, and who asks:" help:"Read the API token from this file; it overrides --token, unless only that is given as a flag." placeholder:"FILE" complete:"file"`
	User      string             `group:"Which node, and who asks:" help:"The user's name, under --auth dev. The default is the name that you are logged in with on this machine." placeholder:"NAME"`
	Role      string             `group:"Which node, and who asks:" help:"The user's role, under --auth dev: worker, agent, observer or manager. The default is agent." placeholder:"ROLE"`
	MemberOf  []string           `group:"Which node, and who asks:" help:"The user's groups, under --auth dev, separated by commas." placeholder:"GROUP"`
	Instance  string             `group:"Which node, and who asks:" help:"Tells agents of one user apart. By default each process has its own. If you set it, an agent that is started again continues with the work that it held." placeholder:"NAME"`
}

// Help returns the text that --help adds.
func (AgentCmd) Help() string {
	return `PROGRAM gets the work as JSON on standard input, and GETWORK_ITEM, GETWORK_TASK, GETWORK_WORK_ID and GETWORK_ATTEMPT in its environment. Its output goes where the agent's own output goes.

Its exit status decides what happens to the item:

  0      complete
  75     returned after the task's backoff; the attempt does not count
  other  failed, with the end of its standard error

An item can come twice if an agent dies or loses its lease, so PROGRAM must make sure that its effects happen once. Processes that PROGRAM leaves behind are killed.

Example:

  getwork agent resize-photos --concurrency 4 -- sh -c 'convert "$GETWORK_ITEM" -resize 800x "small/$GETWORK_ITEM"'`
}

func (c *AgentCmd) check() error {
	switch {
	case c.Task == "":
		return command.Usage("name the task to take work from; `getwork task list` lists the tasks")
	case c.Concurrency < 1 || c.Concurrency > 1000:
		return command.Usage("--concurrency must be from 1 to 1000, not %d", c.Concurrency)
	case c.Lease < time.Second || c.Lease > 24*time.Hour:
		return command.Usage("--lease must be from 1s to 24h, not %s", assign.Duration(c.Lease))
	case c.Timeout < 0:
		return command.Usage("--timeout must be 0s or more, not %s", assign.Duration(c.Timeout))
	case c.KillAfter < 0:
		return command.Usage("--kill-after must be 0s or more, not %s", assign.Duration(c.KillAfter))
	case c.DrainTimeout < 0:
		return command.Usage("--drain-timeout must be 0s or more, not %s", assign.Duration(c.DrainTimeout))
	case len(c.Program) == 0 || c.Program[0] == "":
		return command.Usage("name the program to run for each item, after --: getwork agent %s -- PROGRAM", c.Task)
	}
	return nil
}

// Run takes work until its context ends or, with --once, until nothing is left.
func (c AgentCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	path, err := exec.LookPath(c.Program[0])
	if err != nil {
		return command.Usage("can't run %q: %v", c.Program[0], errors.Unwrap(err))
	}
	// The client explains what is wrong with an address, a name or a token.
	client, err := holding{Remote: Remote{URL: c.URL, Token: c.Token, TokenFile: c.TokenFile, User: c.User, Role: c.Role, MemberOf: c.MemberOf}, Instance: c.Instance}.connect(web.Agent)
	if err != nil {
		return err
	}
	errs := &shared{w: s.RawErrs}
	log := slog.New(slog.NewTextHandler(errs, nil))
	p := &program{path: path, args: c.Program, timeout: c.Timeout, killAfter: c.KillAfter, out: shareable(s.RawOut), errs: errs, log: log}
	if p.warden, err = newWarden(); err != nil {
		log.Warn("processes that PROGRAM starts may outlive an agent that is killed", "error", err)
	}
	defer p.warden.close()
	drain := c.DrainTimeout
	if drain == 0 {
		drain = -1
	}
	a := &agent.Agent{
		URL: client.URL, Token: client.Token, User: client.User, Role: client.Role,
		Groups: c.MemberOf, Instance: c.instance(), Task: c.Task, Handler: p, Concurrency: c.Concurrency, Lease: c.Lease, Drain: drain, Once: c.Once, Log: log,
	}
	err = a.Run(ctx)
	var r *api.Problem
	if errors.As(err, &r) {
		return &refused{Problem: *r, url: client.URL, byToken: client.Token != ""}
	}
	return err
}

// instance returns the instance that was named, or else the machine's name and a random suffix, so that people see
// where work is.
func (c *AgentCmd) instance() string {
	if c.Instance != "" {
		return c.Instance
	}
	host, _ := os.Hostname()
	host = strings.Map(func(r rune) rune {
		if assign.CheckInstance(string(r)) != nil {
			return '-'
		}
		return r
	}, host)
	return host[:min(len(host), 40)] + "-" + strings.ToLower(rand.Text()[:10])
}

// shared is a stream to which several goroutines write.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes p without mixing it with other writes.
func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// shareable returns w itself if programs can write to it directly, and otherwise a shared.
func shareable(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		return f
	}
	return &shared{w: w}
}
