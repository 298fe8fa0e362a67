// Peers measures other queues on PostgreSQL, for comparison with getwork's bench: River, Graphile Worker and pg-boss,
// at the versions in go.mod and package.json.
//
// Each peer runs in a process of its own (river.go, graphile.mjs, pgboss.mjs), so that its CPU can be separated from the
// database's. This process only gives commands, reads clocks, and checks at the end that every inserted job was worked
// exactly once. It is a module of its own, so that getwork depends on no peer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

const help = `Measures River, Graphile Worker and pg-boss, and what getwork does in bulk, on one PostgreSQL, one after another, round by round.

  go -C cmd/peers run . [flags]

Without a URL it starts a private PostgreSQL, which ends with it. On a given one it creates schemas named
getwork_peers_*, and drops them at the end. Graphile Worker and pg-boss need node, and npm, which fetches them into a
temporary folder; without those they are left out.

`

func main() {
	if len(os.Args) == 2 && os.Args[1] == riverCommand {
		os.Exit(riverClient())
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit status.
func run(args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), help)
		flags.PrintDefaults()
	}
	url := flags.String("database-url", "", "`URL` of a PostgreSQL database in which schemas can be created; by default a private server is started")
	rounds := flags.Int("rounds", 3, "how often each figure is measured; the median is reported")
	seconds := flags.Float64("seconds", 3, "how long each figure is measured in a round")
	asJSON := flags.Bool("json", false, "print one JSON document instead of a table")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		return exitUsage
	case flags.NArg() > 0:
		_, _ = fmt.Fprintf(errs, "peers: unknown argument %q; there are only flags: see --help\n", flags.Arg(0))
		return exitUsage
	case *rounds < 1 || *seconds < 0.1 || *seconds > 60:
		_, _ = fmt.Fprintln(errs, "peers: --rounds must be at least 1, --seconds between 0.1 and 60")
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{
		rounds: *rounds, seconds: *seconds,
		log: func(format string, args ...any) { _, _ = fmt.Fprintf(errs, "peers: "+format+"\n", args...) },
	}
	report, err := b.run(ctx, *url)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err == nil {
		err = show(out, report, *asJSON)
	}
	if err != nil {
		_, _ = fmt.Fprintln(errs, "peers:", err)
		return exitFailed
	}
	return exitDone
}

func show(out io.Writer, r *report, asJSON bool) error {
	if !asJSON {
		return r.table(out)
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// patience is how long everything except the measurements may take: migrations, working off inserted jobs, ending.
const patience = 2 * time.Minute
