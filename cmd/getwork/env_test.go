package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"getwork/cmd/internal/cluster"
)

// Connection, identity and how a node serves are taken from the environment, and nothing of what a single call does.
func TestEnvironment(t *testing.T) {
	k, err := kong.New(&cli{}, kong.PostBuild(fromEnvironment), kong.Vars{"version": "x"}, kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	var visit func(n *kong.Node)
	visit = func(n *kong.Node) {
		for _, f := range n.Flags {
			want := n.Name == "serve" && f.Name != "help" || slices.Contains(settings, f.Name)
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

// A yes in the environment is nobody's yes.
func TestYesInTheEnvironment(t *testing.T) {
	c := terminal{t: t, binary: cluster.Binary(t), env: []string{"GETWORK_URL=http://127.0.0.1:1", "GETWORK_YES=true", "GETWORK_DRY_RUN=true", "GETWORK_OF=tracy"}}
	c.run(2, text("nobody is there to be asked: --yes"), "work", "release", "--of", "tracy")
	c.run(2, text("say whose work"), "work", "release", "--yes")
}

// What is printed for programs is for people to read, too, and says the same.
func TestJSONIsReadable(t *testing.T) {
	for sent, want := range map[string]string{
		`{"query":"rank \u003c 10 \u0026\u0026 \u003e"}`: `{"query":"rank < 10 && >"}`,
		`["\\u003c","\\\u003c","\u2028\"\u00e9"]`:        `["\\u003c","\\<","\u2028\"\u00e9"]`,
		`"\u003`: `"\u003`,
		`\`:      `\`,
	} {
		if got := string(readable([]byte(sent))); got != want {
			t.Errorf("%s: %s, want %s", sent, got, want)
		}
	}
	var b strings.Builder
	if err := printJSON(&b, map[string]string{"query": "a < b & c > d"}); err != nil || !strings.Contains(b.String(), `"a < b & c > d"`) {
		t.Errorf("%s, %v", b.String(), err)
	}
}
