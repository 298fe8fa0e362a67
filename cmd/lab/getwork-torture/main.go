// Getwork-torture breaks a cluster of getwork in every way that it should survive, under load, and judges what
// happened. It is not part of what users deploy. See --help, and package torture.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"getwork/cmd/lab/torture"
	"getwork/cmd/lab/torture/history"
)

// The exit statuses.
const (
	exitClean = 0
	exitFound = 1 // a violation, or nothing could be judged
	exitUsage = 2
)

// flags is the command line.
type flags struct {
	Seed      uint64        `help:"Seed of the faults and the users' intentions; 0 picks one at random. It is printed first." default:"0"`
	Seeds     int           `help:"How many runs to make, one after the other, each with its own seed: counting up from --seed, or all at random." default:"1"`
	For       time.Duration `help:"How long faults come in each run; users work for half a minute longer, in which everything must be pushed." default:"${for}"`
	Nodes     int           `help:"How many nodes." default:"${nodes}"`
	Users     int           `help:"How many users." default:"${users}"`
	Agents    int           `help:"How many programs." default:"${agents}"`
	Every     time.Duration `help:"Mean time between faults." default:"${every}"`
	Faults    []string      `help:"Only these kinds, listed above; none breaks nothing." placeholder:"KIND,…"`
	Without   []string      `help:"All kinds except these." placeholder:"KIND,…"`
	Scenario  string        `help:"What users do; the scenarios are listed above." default:"${scenario}"`
	Think     time.Duration `help:"Mean time between two acts of a user." default:"${think}"`
	Settle    time.Duration `help:"How long requests may wait after everything is healed." default:"${settle}"`
	Isolation string        `help:"The server's default_transaction_isolation, such as 'repeatable read'." placeholder:"LEVEL"`
	Binary    string        `help:"The getwork to run; by default it is built from the same repository as this program." placeholder:"PATH" type:"path"`
	Former    string        `help:"With --scenario upgrade: an earlier getwork, which is upgraded to the one to run; by default that one is, to one with another migration." placeholder:"PATH" type:"existingfile"`
	Race      bool          `help:"Build getwork with the race detector."`
	Serve     []string      `help:"A further flag of getwork serve, such as --serve=--no-listen; may be repeated." placeholder:"FLAG" sep:"none"`
	DataDir   string        `help:"Folder in which PostgreSQL's data is created; by default it is in memory, if there is room." placeholder:"DIR" type:"path"`
	Judge     string        `help:"Run nothing, but judge this kept history." placeholder:"FILE" type:"existingfile"`
	Out       string        `help:"Folder for the history (JSON lines) and the nodes' logs. By default they are kept only after a violation or an error, in a folder that is printed." placeholder:"DIR" type:"path"`
}

// help returns the text that --help adds.
func help() string {
	var b strings.Builder
	b.WriteString(`The command starts a private PostgreSQL and several nodes, each with its own proxies between itself and the database. Users and programs work through the public interface, while things break at random. At the end everything is healed, pending requests are served, and a checker judges the recorded calls, answers and messages together with the final tables. Exit status: 0 nothing found, 1 a violation, 2 wrong usage.

The sequence of faults depends only on --seed, --every, --faults and --nodes, and the users' intentions depend only on --seed. The outcome also depends on the machine's timing: to see something again, repeat the seed a few times, or read the kept history.

A run keeps its history in memory, some tens of MB a minute: for a night, take --seeds 500 --for 1m, not --for 8h. All runs use the same binary.

Kinds of faults:
`)
	for _, k := range torture.Kinds {
		fmt.Fprintf(&b, "\n  %-22s %s", k.Name, k.Help)
	}
	b.WriteString("\n\nScenarios:\n")
	for _, s := range torture.Scenarios {
		fmt.Fprintf(&b, "\n  %-22s %s", s.Name, s.Help)
	}
	return b.String()
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes one command line and returns its exit status.
func run(args []string, out, errs io.Writer) (status int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var f flags
	d := torture.Defaults
	parser, err := kong.New(&f,
		kong.Name("getwork-torture"),
		kong.Description("Breaks a cluster of getwork, under load, and judges what happened.\n\n"+help()),
		kong.Writers(out, errs),
		kong.Vars{"for": d.For.String(), "nodes": fmt.Sprint(d.Nodes), "users": fmt.Sprint(d.Users), "agents": fmt.Sprint(d.Agents),
			"every": d.Every.String(), "scenario": d.Scenario, "think": d.Think.String(), "settle": d.Settle.String()},
		kong.Exit(func(status int) { panic(exiting(status)) }),
	)
	if err != nil {
		_, _ = fmt.Fprintln(errs, "getwork-torture:", err)
		return exitFound
	}
	defer func() { // after --help
		if r := recover(); r != nil {
			code, ok := r.(exiting)
			if !ok {
				panic(r)
			}
			status = int(code)
		}
	}()
	o := torture.Options{}
	if _, err = parser.Parse(args); err == nil {
		o, err = f.options(errs).Complete()
	}
	if err == nil && f.Seeds < 1 {
		err = errors.New("--seeds must be at least 1")
	}
	if err != nil {
		_, _ = fmt.Fprintf(errs, "getwork-torture: %v\nTry getwork-torture --help.\n", err)
		return exitUsage
	}
	if f.Judge != "" {
		err = judge(f.Judge, out)
	} else {
		err = f.runs(ctx, o, out)
	}
	if err != nil {
		_, _ = fmt.Fprintln(errs, "getwork-torture:", err)
		return exitFound
	}
	return exitClean
}

// exiting is panicked with to leave kong after --help.
type exiting int

func (f flags) options(errs io.Writer) torture.Options {
	return torture.Options{Seed: f.Seed, For: f.For, Nodes: f.Nodes, Users: f.Users, Agents: f.Agents, Every: f.Every, Faults: f.Faults, Without: f.Without,
		Scenario: f.Scenario, Think: f.Think, Settle: f.Settle, Isolation: f.Isolation, Binary: f.Binary, Former: f.Former, Race: f.Race,
		Flags: f.Serve, DataDir: f.DataDir, Out: f.Out,
		Log: func(format string, args ...any) { _, _ = fmt.Fprintf(errs, "torture: "+format+"\n", args...) }}
}

// judge judges a history in a file.
func judge(name string, out io.Writer) error {
	h, err := history.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	report := torture.Judge(h)
	if err := report.Text(out); err != nil {
		return err
	}
	if n := report.Found(); n > 0 {
		return fmt.Errorf("%d violations", n)
	}
	return nil
}

// runs makes all runs with one binary, and returns an error if a violation was found.
func (f flags) runs(ctx context.Context, o torture.Options, out io.Writer) error {
	if o.Binary == "" {
		dir, err := os.MkdirTemp("", "getwork-torture-binary-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.Log("building getwork")
		binary := filepath.Join(dir, "getwork")
		if err := torture.Build(ctx, binary, o); err != nil {
			return err
		}
		o.Binary, o.Race = binary, false
	}
	violations, failed := 0, 0
	for i := range f.Seeds {
		one := o
		if o.Seed != 0 {
			one.Seed = o.Seed + uint64(i)
		}
		if o.Out != "" && f.Seeds > 1 {
			one.Out = filepath.Join(o.Out, fmt.Sprintf("run-%04d", i+1))
		}
		report, err := torture.Run(ctx, one)
		if err != nil {
			return errors.Join(err, report.Unjudged(out))
		}
		if err := report.Text(out); err != nil {
			return err
		}
		violations += report.Found()
		if report.Found() > 0 {
			failed++
		}
	}
	if f.Seeds > 1 {
		_, _ = fmt.Fprintf(out, "%d runs, %d with violations\n", f.Seeds, failed)
	}
	if violations > 0 {
		return fmt.Errorf("%d violations in %d of %d runs", violations, failed, f.Seeds)
	}
	return nil
}
