package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/cli"
	"getwork/cmd/internal/command"
)

// benchCmd measures getwork, and the limits of the machine next to it.
type benchCmd struct {
	DatabaseURL string   `help:"The PostgreSQL to measure, as postgres://…; by default a private one is started." placeholder:"URL" call:""`
	Only        []string `help:"Make only these measurements, listed above." placeholder:"NAME,…"`
	Quick       bool     `help:"Answer in two minutes how many clicks this PostgreSQL can take. With --only: use few users and rows, for figures not fit to be quoted."`
	Rounds      *int     `help:"How often each figure is measured; the median is reported. By default 3 times, and 5 with --against." placeholder:"N"`
	Against     string   `help:"Only compare the CPU per click with that of this getwork executable, such as the release before." placeholder:"FILE"`
	JSON        bool     `name:"json" help:"Print one JSON document: facts and figures."`
	Write       string   `help:"Also write the table to benchmarks.md in this folder." placeholder:"DIR"`
}

// Help returns the text that --help adds.
func (benchCmd) Help() string {
	text := `The command tells how fast getwork is on this machine, and whether your PostgreSQL is fast enough. Each figure stands beside its limit: the cost of the same writes, queries or sockets without getwork, measured in the same minutes. Answers are checked, too: the command fails if an item was given to two users, or a request was never answered.

With --quick it takes less than two minutes, and says at the end how many people can click once a minute. It measures clicks per second and the CPU of one, how long a click takes on an idle system, and how long a push to another node, each beside its limit.

A goal is met, not met, or within the noise. The noise is how much the same figure differs when it is measured again: between rounds, and between the start and the end of the command.

--against runs both programs in turn, this one, the other, the other again, this one again, and prints the ratio of their CPU per click beside the noise.

Nodes are processes of this program, and this process makes the load, all on this machine. In the database of --database-url each measurement creates a schema of its own, getwork_bench_ and eight letters, and drops it at the end, even after Ctrl-C. query-login also creates a login of that name, which the whole server has, and drops it with the schema. Nothing else there is touched, but the server is kept busy: do not use one that others work with. The login needs the right to create schemas, and for query-login that to create roles.

Measurements:
`
	for _, m := range bench.All {
		text += fmt.Sprintf("\n  %-12s %s", m.Name, m.Help)
	}
	return text + `

A missed goal is shown, but is no failure.`
}

func (c benchCmd) check() error {
	if n := c.rounds(); n < 1 || n > 100 {
		return command.Usage("--rounds must be from 1 to 100, not %d", n)
	}
	var names []string
	for _, m := range bench.All {
		names = append(names, m.Name)
	}
	for _, name := range c.Only {
		if !slices.Contains(names, name) {
			return command.Usage("--only must name measurements (%s), not %q", strings.Join(names, ", "), name)
		}
	}
	switch {
	case c.Against == "" && slices.Contains(c.Only, "against"):
		return command.Usage("--only against needs --against FILE, the executable to compare with")
	case c.Against != "" && len(c.Only) > 0:
		return command.Usage("--against is a measurement of its own: leave out --only")
	case c.Against != "" && c.Write != "":
		return command.Usage("--against can't be used with --write: the page does not show it")
	}
	if c.Against != "" {
		if _, err := exec.LookPath(c.Against); err != nil {
			return command.Usage("--against: %v: name an executable of getwork, with its folder", err)
		}
	}
	return nil
}

// Run measures and prints. It fails if a measurement or a check failed.
func (c benchCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	var page bench.Page
	if c.Write != "" { // before anything is measured
		var err error
		if page, err = bench.ReadPage(c.Write); err != nil {
			return command.Usage("--write: %v", err)
		}
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	e := &bench.Env{Binary: program, Against: c.Against, DatabaseURL: c.DatabaseURL, Rounds: c.rounds(), Quick: c.Quick, Log: func(format string, args ...any) {
		_, _ = fmt.Fprintf(s.Errs, "bench: "+format+"\n", args...)
	}}
	if c.DatabaseURL == "" {
		e.Log("starting a private PostgreSQL")
		stop, err := e.Private(ctx)
		if err != nil {
			return err
		}
		defer stop()
	} else if err := e.FindServer(ctx); err != nil {
		return err
	}
	facts, err := e.Facts(ctx, versionLine(), c.command(), c.DatabaseURL == "")
	if err != nil {
		return err
	}
	report := bench.Report{Facts: facts}
	failed := c.measure(ctx, e, &report)
	if ctx.Err() != nil {
		return cli.ErrInterrupted
	}
	report.Conclude()
	if c.JSON {
		err = report.JSON(s.Out)
	} else {
		_, err = io.WriteString(s.Out, report.Markdown())
	}
	if c.Write != "" && failed == nil && err == nil {
		err = page.Write(&report)
	}
	return errors.Join(failed, err)
}

// rounds returns how often each figure is measured.
func (c benchCmd) rounds() int {
	switch {
	case c.Rounds != nil:
		return *c.Rounds
	case c.Against != "":
		return 5
	}
	return 3
}

// measure makes the measurements, and takes the references before and after. If one fails, the others are still made.
func (c benchCmd) measure(ctx context.Context, e *bench.Env, report *bench.Report) (failed error) {
	take := func(name, help string, do func() error) {
		if ctx.Err() != nil {
			return
		}
		e.Log("%s: %s", name, help)
		if err := do(); err != nil && ctx.Err() == nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
			e.Log("%s failed: %v", name, err)
		}
	}
	references := e.References()
	takeReferences := func() {
		if c.asks() == "" { // the others compare their own rounds
			take("noise", "how much the machine differs from itself", func() error { return references.Take(ctx) })
		}
	}
	takeReferences()
	for _, m := range bench.All {
		if c.wants(m) {
			take(m.Name, m.Help, func() error {
				figures, err := m.Run(ctx, e)
				report.Figures = append(report.Figures, figures...)
				return err
			})
		}
	}
	takeReferences()
	report.References = references.Figures()
	return failed
}

// asks returns the flag that asks for one measurement only, or "".
func (c benchCmd) asks() string {
	switch {
	case c.Against != "":
		return bench.ForAgainst
	case c.Quick && len(c.Only) == 0 && c.Write == "":
		return bench.ForQuick
	}
	return ""
}

// wants reports whether a measurement is to be made.
func (c benchCmd) wants(m bench.Measurement) bool {
	switch {
	case c.asks() != "":
		return m.For == c.asks()
	case len(c.Only) > 0:
		return slices.Contains(c.Only, m.Name)
	}
	return m.For == "" || m.For == bench.ForWrite && c.Write != ""
}

// command returns the command line as far as it matters for the figures. It leaves out the URL, which may hold a
// password.
func (c benchCmd) command() string {
	text := "getwork bench"
	if c.DatabaseURL != "" {
		text += " --database-url URL"
	}
	if len(c.Only) > 0 {
		text += " --only " + strings.Join(c.Only, ",")
	}
	if c.Against != "" {
		text += " --against FILE"
	}
	if c.Quick {
		text += " --quick"
	}
	return text + fmt.Sprintf(" --rounds %d", c.rounds())
}

// versionLine returns the program's version, and the commit that it was built from.
func versionLine() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "getwork " + version
	}
	text := "getwork " + version
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			text += " " + setting.Value[:min(12, len(setting.Value))]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			text += " and changes"
		}
	}
	return text
}
