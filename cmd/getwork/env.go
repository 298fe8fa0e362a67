package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// settings are the flags that can be set in the environment at every command that has them: which node or database it is about,
// and who asks. What a single call does is never taken from there: a GETWORK_YES that somebody set for something else would
// take back work unasked, and a GETWORK_OUTCOME complete what was to be returned.
var settings = []string{"url", "token", "user", "role", "member-of", "instance", "database-url", "database-url-file", "schema", "listen", "data-dir"}

// fromEnvironment has settings, and all flags of serve, taken from GETWORK_<FLAG> where they are not given.
func fromEnvironment(k *kong.Kong) error {
	var visit func(n *kong.Node, all bool)
	visit = func(n *kong.Node, all bool) {
		for _, f := range n.Flags {
			if len(f.Envs) == 0 && (all || slices.Contains(settings, f.Name)) && f.Name != "help" {
				f.Envs = []string{"GETWORK_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}
				f.Tag.Envs = f.Envs
			}
		}
		for _, child := range n.Children {
			visit(child, all || child.Name == "serve")
		}
	}
	visit(k.Model.Node, false)
	return nil
}
