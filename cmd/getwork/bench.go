package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
	"getwork/cmd/internal/cli"
	"getwork/cmd/internal/command"
)

// benchCmd measures getwork, and the limits of the machine next to it.
type benchCmd struct {
	bench.Flags
	Against string `help:"Only compare the CPU per click with that of this getwork executable, such as the release before. By default in five rounds." placeholder:"FILE"`
	Quick   bool   `help:"Answer in two minutes how many clicks this PostgreSQL can take. With --only: use few users and rows, for figures not fit to be quoted."`
}

// benchable are the measurements that --only can name.
var benchable = append(slices.Clone(bench.All), bench.Quick)

// Help returns the text that --help adds.
func (benchCmd) Help() string {
	return `The command tells how fast getwork is on this machine, and whether your PostgreSQL is fast enough. Each figure stands beside its limit: the cost of the same writes and notifications without getwork, measured in the same minutes. Answers are checked, too: the command fails if an item was given to two users, or a request was never answered.

With --quick it takes less than two minutes, and says at the end how many people can click once a minute. It measures clicks per second and the CPU of one, how long a click takes on an idle system, and how long a push to another node, each beside its limit.

A goal is met, not met, or within the noise. The noise is how much the same figure differs when it is measured again: between rounds, and between the start and the end of the command.

--against runs both programs in turn, this one, the other, the other again, this one again, and prints the ratio of their CPU per click beside the noise.

Nodes are processes of this program, and this process makes the load, all on this machine. In the database of --database-url each measurement creates a schema of its own, getwork_bench_ and eight letters, and drops it at the end, even after Ctrl-C. Nothing else there is touched, but the server is kept busy: do not use one that others work with. The login needs the right to create schemas.

Measurements:
` + bench.List(benchable) + `

A missed goal is shown, but is no failure. More measurements are made by cmd/lab/getwork-measure in getwork's source: see docs/benchmarks.md.`
}

// run returns what the flags ask for.
func (c benchCmd) run() (r bench.Session, all []bench.Measurement, err error) {
	wanted, err := c.Wanted(benchable)
	if err != nil {
		return r, nil, err
	}
	r = bench.Session{Flags: c.Flags, Command: "getwork bench", Env: stage.Env{Rounds: 3, Quick: c.Quick}}
	if c.Quick {
		r.Command += " --quick"
	}
	switch {
	case c.Against != "":
		if len(c.Only) > 0 {
			return r, nil, errors.New("--against is a measurement of its own: leave out --only")
		}
		if _, err := exec.LookPath(c.Against); err != nil {
			return r, nil, fmt.Errorf("--against: %w: name an executable of getwork, with its folder", err)
		}
		r.Command, r.Env.Rounds = r.Command+" --against FILE", 5
		return r, []bench.Measurement{bench.Against(c.Against)}, nil
	case c.Quick && len(c.Only) == 0:
		return r, []bench.Measurement{bench.Quick}, nil
	}
	r.Noise = true // the others compare their own rounds
	if len(c.Only) == 0 {
		wanted = bench.All
	}
	return r, wanted, nil
}

// Run measures and prints. It fails if a measurement or a check failed.
func (c benchCmd) Run(ctx context.Context, s *command.Streams) error {
	r, all, err := c.run()
	if err != nil {
		return command.AsUsage(err)
	}
	if r.Binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	r.Log = func(format string, args ...any) { _, _ = fmt.Fprintf(s.Errs, "bench: "+format+"\n", args...) }
	_, err = r.Report(ctx, all, s.Out)
	if err != nil && ctx.Err() != nil {
		return cli.ErrInterrupted
	}
	return err
}
