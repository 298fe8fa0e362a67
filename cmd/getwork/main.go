// Getwork hands out work to many people at once, from PostgreSQL.
//
// This package wires the parts together and is the only place that knows all of them: serve.go is a node,
// demo.go a whole bank with three of them, and the rest are clients of the REST API.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// cli is the command line. Settings can be given in the environment, too (see fromEnvironment); flags beat it.
type cli struct {
	Serve      serveCmd      `cmd:"" help:"Run one node."`
	Demo       demoCmd       `cmd:"" help:"Run a sample bank: a private PostgreSQL and several nodes."`
	Migrate    migrateCmd    `cmd:"" help:"Change the database's schema, or show where it stands."`
	Task       taskCmd       `cmd:"" help:"Manage tasks: list, show, create, change, preview, pause and delete them."`
	Get        getCmd        `cmd:"" help:"Get work of a task."`
	Pipeline   pipelineCmd   `cmd:"" help:"Show the work that you hold, and what you wait for."`
	Agent      agentCmd      `cmd:"" help:"Take work of a task, and run a program for each item."`
	Done       doneCmd       `cmd:"" help:"Let go of work: complete it, return it, never see it again, or say that it failed."`
	Work       workCmd       `cmd:"" help:"List, extend, reassign and take back work."`
	Items      itemsCmd      `cmd:"" help:"Push, explain, claim and put back items."`
	Completion completionCmd `cmd:"" help:"Print a script that makes bash, zsh or fish complete getwork's commands."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:"" passthrough:""`
	BenchRaw   benchRawCmd   `cmd:"" name:"__raw-tcp" hidden:""`
	Bench      benchCmd      `cmd:"" help:"Measure how fast getwork and the database are."`
	Version    versionCmd    `cmd:"" help:"Print the version."`

	PrintVersion kong.VersionFlag `name:"version" short:"v" help:"Print the version."`
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run carries out one command line.
func run(args []string, rawOut, rawErrs io.Writer) int {
	out, errs := visible{w: rawOut}, visible{w: rawErrs}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c cli
	c.Serve.Version = version
	exited := -1
	parser, err := kong.New(&c,
		kong.Name("getwork"),
		kong.Description("Hands out work to many people at once, from PostgreSQL. Which node or database, who asks, and how a node serves can also be set in the environment; --help names the variables."),
		kong.PostBuild(fromEnvironment),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(out, errs),
		kong.Vars{"version": "getwork " + version},
		kong.Exit(func(status int) { exited = status; panic(exiting{}) }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(&streams{out: out, errs: errs, rawOut: rawOut, rawErrs: rawErrs}),
	)
	if err != nil {
		_, _ = fmt.Fprintln(errs, "getwork:", err)
		return exitFailed
	}
	command, err := parse(parser, args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		_, _ = fmt.Fprintf(errs, "getwork: %v\nTry getwork --help.\n", err)
		return exitUsage
	}
	err = command.Run()
	var wrong usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &wrong):
		_, _ = fmt.Fprintln(errs, "getwork:", err)
		return exitUsage
	}
	_, _ = fmt.Fprintln(errs, "getwork:", err)
	return exitFailed
}

// exiting unwinds kong after --help.
type exiting struct{}

func parse(parser *kong.Kong, args []string) (command *kong.Context, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exiting); !ok {
				panic(r)
			}
		}
	}()
	return parser.Parse(args)
}
