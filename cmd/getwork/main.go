// Getwork hands out work to many people at once, from PostgreSQL.
//
// This package wires the commands together: cmd/internal/serve is a node, cmd/internal/demo a whole bank with three
// nodes, and cmd/internal/cli has the commands that are clients of the REST API.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	_ "golang.org/x/crypto/x509roots/fallback" // public authorities, for images and machines that have none of their own

	"getwork/cmd/internal/cli"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/demo"
	"getwork/cmd/internal/doctor"
	"getwork/cmd/internal/health"
	"getwork/cmd/internal/man"
	"getwork/cmd/internal/serve"
	"getwork/cmd/internal/setup"
)

// commandLine has all commands, in the groups and the order in which --help shows them. Settings can also come from the environment (see fromEnvironment); flags override it.
type commandLine struct {
	Get      cli.GetCmd      `cmd:"" group:"work" help:"Get work from a task, or the next of any."`
	Pipeline cli.PipelineCmd `cmd:"" group:"work" help:"Show the work that you hold, and your waiting requests."`
	Agent    cli.AgentCmd    `cmd:"" group:"work" help:"Take work from a task, and run a program for each item."`
	Done     cli.DoneCmd     `cmd:"" group:"work" help:"Let go of work: complete it, return it, set it to never, or report that it failed."`
	Later    cli.LaterCmd    `cmd:"" group:"work" help:"Put work that you hold aside for a while."`
	Away     cli.AwayCmd     `cmd:"" group:"work" help:"Be away for a time, and get no work."`
	Back     cli.BackCmd     `cmd:"" group:"work" help:"Be back: end your absence."`

	Task  cli.TaskCmd  `cmd:"" group:"manage" help:"Manage tasks: list, show, create, change, preview, pause and delete them."`
	Work  cli.WorkCmd  `cmd:"" group:"manage" help:"List, extend, reassign and take back work."`
	Items cli.ItemsCmd `cmd:"" group:"manage" help:"Push, explain, claim and put back items."`

	Skills cli.SkillsCmd `cmd:"" group:"manage" help:"Show or set what somebody can, for items that need it."`
	Limits cli.LimitsCmd `cmd:"" group:"manage" help:"Limit how many items one user holds at a time, over all tasks."`

	Alerts cli.AlertsCmd `cmd:"" group:"manage" help:"List what is wrong with tasks now."`

	Webhook cli.WebhookCmd `cmd:"" group:"manage" help:"Post a task's events to URLs, and see what was sent."`

	Audit   serve.Audit    `cmd:"" group:"people" help:"Check and export the audit: who did what to people, tasks and other people's work."`
	Token   cli.TokenCmd   `cmd:"" group:"people" help:"Make, list and revoke API tokens, for programs."`
	Login   cli.LoginCmd   `cmd:"" group:"people" help:"Log in with your browser, for the commands of this terminal."`
	Logout  cli.LogoutCmd  `cmd:"" group:"people" help:"Log this terminal out."`
	Session cli.SessionCmd `cmd:"" group:"people" help:"List and end log-ins."`
	User    cli.UserCmd    `cmd:"" group:"people" help:"For administrators: list, block, unblock and rebind people."`

	Serve   serve.Command  `cmd:"" group:"run" help:"Run one node."`
	Init    setup.Command  `cmd:"" group:"run" help:"Write the first files: the settings of a node, and a task for a table."`
	Doctor  doctor.Command `cmd:"" group:"run" help:"Look for what is wrong: with the database, its settings and rights, the tasks, the nodes, this machine."`
	Health  health.Command `cmd:"" group:"run" help:"Ask whether a node is ready, or alive; for containers."`
	Demo    demo.Command   `cmd:"" group:"run" help:"Run a sample bank: a private PostgreSQL and several nodes."`
	Migrate serve.Migrate  `cmd:"" group:"run" help:"Change the database's schema, or show its version."`

	Bench benchCmd `cmd:"" group:"measure" help:"Measure how fast getwork and the database are."`

	Completion cli.CompletionCmd `cmd:"" group:"more" help:"Print a script that completes getwork's commands in bash, zsh or fish."`
	Version    versionCmd        `cmd:"" group:"more" help:"Print the version."`

	Complete     cli.CompleteCmd  `cmd:"" name:"__complete" hidden:"" passthrough:""`
	Man          man.Command      `cmd:"" name:"__man" hidden:""`
	PrintVersion kong.VersionFlag `name:"version" short:"v" help:"Print the version."`
}

// flags is how the flags of all commands are read.
var flags = kong.OptionFunc(func(k *kong.Kong) error {
	return errors.Join(cli.SettingFlags.Apply(k), cli.ListFlags.Apply(k), kong.PostBuild(fromEnvironment).Apply(k))
})

// groups are the titles in --help.
var groups = []kong.Group{
	{Key: "work", Title: "Get work and let go of it:"},
	{Key: "manage", Title: "Manage tasks, items and work:"},
	{Key: "people", Title: "Log in, and manage who may do what:"},
	{Key: "run", Title: "Run getwork:"},
	{Key: "measure", Title: "Measure:"},
	{Key: "more", Title: "More:"},
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit status.
func run(args []string, rawOut, rawErrs io.Writer) int {
	out, errs := &command.Visible{W: rawOut, Colour: command.Coloured(rawOut), Columns: command.Columns(rawOut)}, &command.Visible{W: rawErrs, Colour: command.Coloured(rawErrs)}
	say := func(format string, args ...any) {
		_ = command.Paint(errs, command.Red, "getwork:")
		_, _ = fmt.Fprintf(errs, " "+format+"\n", args...)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c commandLine
	b := thisBuild()
	c.Serve.Version, c.Serve.Revision, c.Doctor.Serve.Version = b.version, b.revision, b.version
	exited := -1
	parser, err := kong.New(&c,
		kong.Name("getwork"),
		kong.Description("Hands out work to many people at once, from PostgreSQL. The node or database, the user, and a node's settings can also be set in the environment; --help names the variables."),
		flags,
		kong.ExplicitGroups(groups),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(out, errs),
		kong.Vars{"version": "getwork " + b.version},
		kong.Exit(func(status int) { exited = status; panic(exiting{}) }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(&command.Streams{Out: out, Errs: errs, RawOut: rawOut, RawErrs: rawErrs}),
	)
	if err != nil {
		say("%v", err)
		return command.ExitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if i := slices.IndexFunc(ours(args), func(arg string) bool { return !utf8.ValidString(arg) }); i >= 0 {
		say("the argument %q is not UTF-8 text; write it in UTF-8\nTry getwork --help.", args[i])
		return command.ExitUsage
	}
	called, err := parse(parser, args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		say("%s\nTry %s --help.", plainly(err), wantedOf(err))
		return command.ExitUsage
	}
	yield(called)
	warnOfToken(called, errs)
	warnOfVariables(called, os.Environ(), errs)
	err = called.Run()
	var wrong command.UsageError
	switch {
	case err == nil:
		return command.ExitDone
	case errors.As(err, &wrong):
		say("%v", err)
		return command.ExitUsage
	}
	say("%v", err)
	return command.ExitFailed
}

// wantedOf returns the command that a command line with an error means, as far as it says.
func wantedOf(err error) string {
	var wrong *kong.ParseError
	if errors.As(err, &wrong) && wrong.Context != nil && wrong.Context.Selected() != nil {
		return wrong.Context.Selected().FullPath()
	}
	return "getwork"
}

// plainly says what the parser says in words that nobody has to be a programmer for.
func plainly(err error) string {
	text := err.Error()
	for _, of := range parserSays {
		text = of.said.ReplaceAllString(text, of.say)
	}
	return text
}

var parserSays = []struct {
	said *regexp.Regexp
	say  string
}{
	{regexp.MustCompile(`: expected (?:a valid \d+ bit u?int|an int) but got ("(?:[^"\\]|\\.)*").*`), " must be a whole number, not $1"},
	{regexp.MustCompile(`: expected a float but got ("(?:[^"\\]|\\.)*").*`), " must be a number, not $1"},
	{regexp.MustCompile(`: expected duration but got ("(?:[^"\\]|\\.)*").*`), " must be a time such as 30s, 90m or 4h, not $1"},
	{regexp.MustCompile(`^(\S+) must be one of (?:"",)?(\S+) but got (".*")$`), "$1 must be one of $2, not $3"},
	{regexp.MustCompile(`^expected "(.*)"$`), "$1 is missing"},
	{regexp.MustCompile(`^expected one of `), "say which: "},
}

// warnOfToken warns somebody who has written a token into the command line.
func warnOfToken(called *kong.Context, errs io.Writer) {
	for _, p := range called.Path {
		if p.Flag != nil && p.Flag.Name == "token" {
			_, _ = fmt.Fprintln(errs, "getwork: every user of this machine can read --token in the list of processes (ps); use --token-file or the variable GETWORK_TOKEN")
			return
		}
	}
}

// ours returns the arguments without those of a program that an agent is to run.
func ours(args []string) []string {
	if end := slices.Index(args, "--"); end >= 0 && args[0] == "agent" {
		return args[:end]
	}
	return args
}

// exiting is panicked with to leave kong after --help.
type exiting struct{}

func parse(parser *kong.Kong, args []string) (called *kong.Context, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exiting); !ok {
				panic(r)
			}
		}
	}()
	return parser.Parse(args)
}
