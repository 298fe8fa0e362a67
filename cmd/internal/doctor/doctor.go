// Package doctor has `getwork doctor`: a table of checks, each a small function, of what a node needs. It finds out before a node
// starts, or beside nodes that run, what the nodes would otherwise meet one by one. It changes nothing.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"getwork/cmd/internal/command"
	"getwork/cmd/internal/serve"
	"getwork/schema"
)

// Command takes the settings of a node, as the node does, so that it checks what the node would use.
type Command struct {
	JSON    bool     `help:"Print the findings as JSON, for programs." call:""`
	Nodes   int      `help:"How many nodes you plan to run, for the check of connections. The default is those that are connected now." placeholder:"N" call:""`
	NodeURL []string `help:"Also ask this node whether it is ready, and compare its clock. Repeatable." placeholder:"URL" call:""`

	Serve serve.Command `embed:""`
}

// Help returns the text that --help adds.
func (*Command) Help() string {
	return `Give it the flags or the environment of a node. It connects as the node would, looks at the database, the logins, the settings, the tasks, the other nodes and this machine, and changes nothing. Each line is ok, a warning, an error, or a check that was skipped because it does not apply; warnings and errors say what to do.

Exits with 1 if there is an error, and with 0 if there are warnings alone.

  getwork doctor --database-url postgres://getwork@db/bank
  getwork doctor --database-url-file url --nodes 12 --json | jq '.checks[] | select(.state != "ok")'`
}

// errFound ends the program with status 1. What was found is printed already.
var errFound = errors.New("something is wrong; see the errors above")

// prepare returns the examination that the flags ask for.
func (c *Command) prepare() (*examination, error) {
	if c.Serve.PrivatePostgres {
		return nil, command.Usage("--private-postgres is a server that its node starts and nobody else reaches; give --database-url")
	}
	if err := c.Serve.Check(); err != nil {
		return nil, err
	}
	name, err := schema.ParseName(c.Serve.Schema)
	if err != nil {
		return nil, command.AsUsage(err)
	}
	if c.Nodes < 0 {
		return nil, command.Usage("--nodes must be 0 or more, not %d", c.Nodes)
	}
	return &examination{config: &c.Serve, name: name, nodes: c.Nodes, urls: c.NodeURL, limits: usual}, nil
}

// Run checks everything, and prints what it found.
func (c *Command) Run(ctx context.Context, s *command.Streams) error {
	x, err := c.prepare()
	if err != nil {
		return err
	}
	defer x.close()
	r := x.examine(ctx)
	r.Getwork = c.Serve.Version
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if c.JSON {
		err = r.json(s.Out)
	} else {
		err = r.lines(s.Out)
	}
	if err == nil && r.Errors > 0 {
		err = errFound
	}
	return err
}

// State is the outcome of a check.
type State string

// The states of a check.
const (
	OK      State = "ok"
	Warning State = "warning"
	Error   State = "error"
	Skipped State = "skipped" // it does not apply, or can't be seen with these rights
)

// Finding is one line: what a check found, and what to do about it.
type Finding struct {
	Check  string `json:"check"`
	State  State  `json:"state"`
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"` // empty unless the state is warning or error
}

// report is all that was found.
type report struct {
	Getwork  string    `json:"getwork"` // the version of this program
	Checks   []Finding `json:"checks"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
}

// examine runs all checks, in their order, since some need what others opened.
func (x *examination) examine(ctx context.Context) report {
	r := report{Checks: []Finding{}}
	for _, c := range checks {
		for _, f := range x.run(ctx, c) {
			f.Check = c.name
			switch f.State {
			case Error:
				r.Errors++
			case Warning:
				r.Warnings++
			}
			r.Checks = append(r.Checks, f)
		}
	}
	return r
}

// checkWithin bounds one check.
const checkWithin = 15 * time.Second

// run runs one check, unless something that it needs is missing. A check that fails is an error: what it would have found is
// unknown.
func (x *examination) run(ctx context.Context, c check) []Finding {
	if why := x.missing(c.needs); why != "" {
		return []Finding{skipped("%s", why)}
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	found, err := c.look(ctx, x)
	if err != nil {
		found = append(found, failed("look at the cause; what this check looks for is unknown until it can be seen", "can't be checked: %v", err))
	}
	return found
}

func (r report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// lines prints a line for each finding, and below it what to do.
func (r report) lines(w io.Writer) error {
	for _, f := range r.Checks {
		if err := command.Paint(w, command.ColourOf(string(f.State)), string(f.State)); err != nil {
			return err
		}
		line := fmt.Sprintf("%*s %-18s %s\n", 8-len(f.State), "", f.Check, oneLine(f.Found))
		if f.Advice != "" {
			line += fmt.Sprintf("%28s%s\n", "-> ", oneLine(f.Advice))
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s, %s, %s\n", counted(len(r.Checks), "finding"), counted(r.Errors, "error"), counted(r.Warnings, "warning"))
	return err
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
