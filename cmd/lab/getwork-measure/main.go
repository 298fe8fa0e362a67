// Getwork-measure makes the project's own measurements of getwork: those that docs/benchmarks.md shows, and those that show whether a
// change costs something. `getwork bench` makes those that users need. Getwork-measure is not part of what users deploy. See --help, and
// package measure.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/node"
	"getwork/cmd/lab/measure"
)

// The exit statuses.
const (
	exitMeasured = 0
	exitFailed   = 1 // a measurement failed, or a check of its answers
	exitUsage    = 2
)

// flags is the command line.
type flags struct {
	bench.Flags
	Small  bool   `help:"Use few users and rows, for figures not fit to be quoted."`
	Write  string `help:"Also write the table to benchmarks.md in this folder, and measure how figures grow." placeholder:"DIR"`
	Binary string `help:"The getwork to run; by default it is built from the same repository as this program." placeholder:"PATH" type:"existingfile"`
}

const about = `Makes the project's own measurements of getwork.

Each figure stands beside its limit: the cost of the same writes, queries or sockets without getwork, measured in the same minutes. Answers are checked, too: the command fails if an item was given to two users, or a request was never answered. A missed goal is shown, but is no failure.

Nodes are processes of getwork, and this process makes the load, all on this machine. In the database of --database-url each measurement creates a schema of its own, getwork_bench_ and eight letters, and drops it at the end, even after Ctrl-C. query-login also creates a login of such a name, which the whole server has, and drops it. The server is kept busy: do not use one that others work with. The login needs the right to create schemas, and for query-login that to create roles.

Measurements:
`

func main() {
	if asked, err := measure.RawPeer(os.Args[1:]); asked {
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "getwork-measure:", err)
			os.Exit(exitFailed)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit status.
func run(args []string, out, errs io.Writer) (status int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	say := func(err error, status int) int {
		_, _ = fmt.Fprintln(errs, "getwork-measure:", err)
		if status == exitUsage {
			_, _ = fmt.Fprintln(errs, "Try getwork-measure --help.")
		}
		return status
	}
	var f flags
	helped := false
	parser, err := kong.New(&f, kong.Name("getwork-measure"), kong.Description(about+bench.List(measure.All)), kong.Writers(out, errs),
		kong.Exit(func(int) { helped = true }))
	if err != nil {
		return say(err, exitFailed)
	}
	_, err = parser.Parse(args)
	if helped {
		return exitMeasured
	}
	var all []bench.Measurement
	var page measure.Page
	if err == nil {
		all, err = f.wanted()
	}
	if err == nil && f.Write != "" { // before anything is measured
		if page, err = measure.ReadPage(f.Write); err != nil {
			err = fmt.Errorf("--write: %w", err)
		}
	}
	if err != nil {
		return say(err, exitUsage)
	}
	report, err := f.report(ctx, all, out, errs)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted")
	}
	if err == nil && f.Write != "" {
		err = page.Write(report)
	}
	if err != nil {
		return say(err, exitFailed)
	}
	return exitMeasured
}

// wanted returns the measurements that the flags ask for.
func (f flags) wanted() ([]bench.Measurement, error) {
	named, err := f.Wanted(measure.All)
	switch {
	case err != nil:
		return nil, err
	case len(f.Only) > 0:
		return named, nil
	case f.Write != "":
		return append(slices.Clone(measure.Usual), measure.Growth), nil
	}
	return measure.Usual, nil
}

// report measures, and writes the report.
func (f flags) report(ctx context.Context, all []bench.Measurement, out, errs io.Writer) (*bench.Report, error) {
	r := bench.Session{Flags: f.Flags, Command: "getwork-measure", Noise: true}
	r.Env.Rounds, r.Quick, r.Binary = 3, f.Small, f.Binary
	r.Log = func(format string, args ...any) { _, _ = fmt.Fprintf(errs, "measure: "+format+"\n", args...) }
	if f.Small {
		r.Command += " --small"
	}
	if r.Binary == "" {
		dir, err := os.MkdirTemp("", "getwork-measure-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		r.Binary = filepath.Join(dir, "getwork")
		r.Log("building getwork")
		if err := build(ctx, r.Binary); err != nil {
			return nil, err
		}
	}
	return r.Report(ctx, all, out)
}

// build compiles getwork from this program's repository. Unlike [node.Build] it records the commit, which the report shows.
func build(ctx context.Context, path string) error {
	source, err := node.Source()
	if err != nil {
		return err
	}
	compile := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/getwork")
	compile.Dir = source
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build getwork: %w\n%s", err, out)
	}
	return nil
}
