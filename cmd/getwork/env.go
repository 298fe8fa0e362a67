package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// settings are the flags that every command takes from the environment, too: those that name the node or database, and
// the user. What a single call does never comes from there: a GETWORK_YES that was set for something else would take
// back work unasked, and a GETWORK_OUTCOME would complete work that was to be returned.
//
// A flag with the tag call is such a flag, though its name is among these: it says whom a new token is for.
var settings = []string{"url", "token", "token-file", "user", "role", "member-of", "instance", "database-url", "database-url-file", "query-database-url", "query-database-url-file", "schema", "listen", "data-dir"}

// nodes are the commands that take all their flags from there, except those with the tag call: they run a node, or check one as
// it was set up.
var nodes = []string{"serve", "health", "doctor"}

// fromEnvironment takes settings, and all flags of those commands, from GETWORK_<FLAG> if the command line does not give them.
func fromEnvironment(k *kong.Kong) error {
	var visit func(n *kong.Node, all bool)
	visit = func(n *kong.Node, all bool) {
		for _, f := range n.Flags {
			if len(f.Envs) == 0 && (all && !f.Tag.Has("call") || isSetting(f)) && f.Name != "help" {
				f.Envs = []string{"GETWORK_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}
				f.Tag.Envs = f.Envs
			}
		}
		for _, child := range n.Children {
			visit(child, all || n == k.Model.Node && slices.Contains(nodes, child.Name))
		}
	}
	visit(k.Model.Node, false)
	return nil
}

func isSetting(f *kong.Flag) bool { return slices.Contains(settings, f.Name) && !f.Tag.Has("call") }

// services are the variables that Kubernetes sets for a service of the name getwork.
var services = regexp.MustCompile(`^GETWORK_(SERVICE_|PORT$|PORT_)`)

// warnOfVariables names the variables of a node that are no setting of any command. A misspelt one would have no effect, and a node
// would, for example, let all managers write queries.
func warnOfVariables(called *kong.Context, environment []string, errs io.Writer) {
	if command := called.Selected(); command == nil || !slices.Contains(nodes, command.Name) {
		return
	}
	known := map[string]bool{}
	var visit func(n *kong.Node)
	visit = func(n *kong.Node) {
		for _, f := range n.Flags {
			for _, name := range f.Envs {
				known[name] = true
			}
		}
		for _, child := range n.Children {
			visit(child)
		}
	}
	visit(called.Model.Node)
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "GETWORK_") && !strings.HasPrefix(name, "GETWORK_TEST_") && !known[name] && !services.MatchString(name) {
			_, _ = fmt.Fprintf(errs, "getwork: no setting has the name %s, so it has no effect; `getwork serve --help` lists all\n", name)
		}
	}
}

// yield leaves out each file that the environment names, where the command line gives what such a file has: flags override the
// environment.
func yield(called *kong.Context) {
	given := map[string]bool{}
	for _, p := range called.Path {
		if p.Flag != nil {
			given[p.Flag.Name] = true
		}
	}
	for _, f := range called.Flags() {
		if of, is := strings.CutSuffix(f.Name, "-file"); is && given[of] && !given[f.Name] {
			f.Target.SetZero()
		}
	}
}
