package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
)

func TestLimitsCommands(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	file := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Run(0, e2e.Text("# version 0\n{}"), "limits", "show")
	write("everybody: 2\ngroups:\n  trainees: 1\npeople:\n  \"ann: the \\\"first\\\"\": 20\n  bob: null\n")
	c.Run(0, e2e.Text("limits updated (version 1)"), "limits", "apply", "-f", file)
	c.Run(0, e2e.Text("limits unchanged (version 1)"), "limits", "apply", "-f", file)
	want := assign.Limits{Everybody: new(2), Groups: map[string]*int{"trainees": new(1)}, People: map[string]*int{`ann: the "first"`: new(20), "bob": nil}}
	var got assign.Limits
	c.Decode(0, &got, "limits", "show")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	shown := c.Run(0, e2e.Text("# version 1\neverybody: 2\n", "trainees: 1", "bob: null"), "limits", "show")
	write(shown)
	c.Run(0, e2e.Text("limits unchanged (version 1)"), "limits", "apply", "-f", file)

	write("everyone: 2\n")
	c.Run(2, e2e.Text(`[1:1] unknown field "everyone"`), "limits", "apply", "-f", file)
	write("everybody: many\n")
	c.Run(2, e2e.Text("[1:12]"), "limits", "apply", "-f", file)
	write("# nothing\n")
	c.Run(2, e2e.Text("is empty; {} removes all limits"), "limits", "apply", "-f", file)
	write("")
	c.Run(2, e2e.Text("is empty; {} removes all limits"), "limits", "apply", "-f", file)
	write("everybody: -1\n")
	c.Run(1, e2e.Text("everybody is from 0 to 1000000, or null for no limit, not -1"), "limits", "apply", "-f", file)
	c.Run(1, e2e.Text("your role is worker"), "limits", "apply", "-f", file, "--role", "worker")

	c.Run(0, nil, "task", "create", "--name", "verify", "--query", "select i as item from generate_series(1, 9) i")
	c.Run(0, e2e.Text("You hold as much as you may, of task verify or over all tasks: you got 2 of 3."), "get", "verify", "--count", "3", "--user", "zoe")
	c.Run(1, e2e.Text("you hold as much as you may, of task verify or over all tasks"), "get", "verify", "--user", "zoe")
	write("{}\n")
	c.Run(0, e2e.Text("limits updated (version 2)"), "limits", "apply", "-f", file)
}
