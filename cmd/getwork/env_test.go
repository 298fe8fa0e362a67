package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
)

// Connection, identity and a node's settings can come from the environment; what a single call does never can.
func TestEnvironment(t *testing.T) {
	k, err := kong.New(&commandLine{}, flags, kong.Vars{"version": "x"}, kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][]string{ // say something of a single call
		"create": {"user", "role", "member-of"}, // of a token
		"bench":  {"database-url"},              // a node's must not be put under load
		"demo":   {"data-dir"},
		"health": {"url"}, // the client's may lead to another node
	}
	var visit func(n *kong.Node)
	visit = func(n *kong.Node) {
		for _, f := range n.Flags {
			want := slices.Contains(nodes, n.Name) && f.Name != "help" && !f.Tag.Has("call") || slices.Contains(settings, f.Name) && !(slices.Contains(calls[n.Name], f.Name) && (n.Name != "create" || n.Parent.Name == "token"))
			if got := len(f.Envs) > 0; got != want || got && !slices.Contains(f.Envs, "GETWORK_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))) {
				t.Errorf("%s --%s is taken from %q", n.FullPath(), f.Name, f.Envs)
			}
		}
		for _, child := range n.Children {
			visit(child)
		}
	}
	visit(k.Model.Node)
}

// What the command line gives beats a file that the environment names, as it beats other variables.
func TestFlagBeatsFile(t *testing.T) {
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_DATABASE_URL_FILE=/nowhere", "GETWORK_TOKEN_FILE=/nowhere", "GETWORK_URL=http://127.0.0.1:1"}}
	c.Run(2, e2e.Text("/nowhere"), "migrate", "status")
	c.Run(1, e2e.Text("can't connect to the database"), "migrate", "status", "--database-url", "postgres://127.0.0.1:1/x")
	c.Run(2, e2e.Text("/elsewhere"), "migrate", "status", "--database-url", "postgres://127.0.0.1:1/x", "--database-url-file", "/elsewhere")
	c.Run(2, e2e.Text("/nowhere"), "task", "list")
	c.Run(1, e2e.Text("connection refused"), "task", "list", "--token", "x")
}

// A secret that everybody can read is named once, though each command's flag has it from the environment.
func TestReadableSecretIsNamedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("gw_x"), 0o644); err != nil { //nolint:gosec // which is what is warned of
		t.Fatal(err)
	}
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_TOKEN_FILE=" + file, "GETWORK_URL=http://127.0.0.1:1"}}
	cmd, _, errs := c.Command("task", "list")
	_ = cmd.Run()
	if n := strings.Count(errs.String(), "every user of this machine can read"); n != 1 {
		t.Errorf("named %d times: %s", n, errs)
	}
}

// A node's variable that nobody reads is named: it was misspelt. Those that Kubernetes sets for a service are not.
func TestMisspeltVariables(t *testing.T) {
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_QUERY_AUTHOR=writers", "GETWORK_PORT=tcp://10.0.0.1:80", "GETWORK_PORT_80_TCP=x",
		"GETWORK_SERVICE_HOST=10.0.0.1", "GETWORK_TOKEN=x", "GETWORK_TEST_SLOW=1"}}
	for command, want := range map[string]bool{"serve": true, "doctor": true, "version": false} {
		cmd, _, errs := c.Command(command)
		_ = cmd.Run()
		if said := strings.Count(errs.String(), "has no effect"); said > 1 || (said == 1 && strings.Contains(errs.String(), "the name GETWORK_QUERY_AUTHOR,")) != want {
			t.Errorf("%s: %s", command, errs)
		}
	}
}

// A GETWORK_YES in the environment answers no question.
func TestYesInTheEnvironment(t *testing.T) {
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_URL=http://127.0.0.1:1", "GETWORK_YES=true", "GETWORK_DRY_RUN=true", "GETWORK_OF=tracy"}}
	c.Run(2, e2e.Text("nobody can be asked: --yes"), "work", "release", "--of", "tracy")
	c.Run(2, e2e.Text("say whose work"), "work", "release", "--yes")
}

// The environment that the agent gives to a program configures no command of getwork that the program calls.
func TestProgramEnvironment(t *testing.T) {
	parser, err := kong.New(&commandLine{}, flags, kong.Writers(io.Discard, io.Discard), kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	given := []string{"GETWORK_ITEM", "GETWORK_TASK", "GETWORK_WORK_ID", "GETWORK_ATTEMPT"}
	for _, leaf := range parser.Model.Leaves(false) {
		for _, flags := range leaf.AllFlags(false) {
			for _, flag := range flags {
				for _, env := range flag.Envs {
					if slices.Contains(given, env) {
						t.Errorf("getwork %s: --%s is set by %s; give it env:\"-\"", leaf.Path(), flag.Name, env)
					}
				}
			}
		}
	}
}
