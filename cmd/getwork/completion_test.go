package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
)

// completes returns the candidates that a shell is offered, without their help.
func completes(t *testing.T, words ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(append([]string{"__complete"}, words...), &out, &errs); status != 0 {
		t.Errorf("%q: %d %s", words, status, &errs)
	}
	var texts []string
	for line := range strings.Lines(out.String()) {
		one, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		texts = append(texts, one)
	}
	return strings.Join(texts, " ")
}

func TestCompletion(t *testing.T) {
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{e2e.Text("zsh", "wo"), "work"},
		{e2e.Text("zsh", "work", ""), "list show export holders extend reassign release"},
		{e2e.Text("zsh", "work", "re"), "reassign release"},
		{e2e.Text("zsh", "completion", "--json", "x", "zs"), ""},
		{e2e.Text("zsh", "--", ""), "get"}, // only the beginning is compared
		{e2e.Text("zsh", "work", "list", "--st"), "--state"},
		{e2e.Text("zsh", "done", "--outcome", ""), "complete return never fail"},
		{e2e.Text("zsh", "done", "--outcome=ne"), "--outcome=never"},
		{e2e.Text("zsh", "done", "--outcome", "never", "--to"), "--to --token --token-file"},
		{e2e.Text("zsh", "done", "--json", "1", ""), ""},
		{e2e.Text("zsh", "completion", ""), "bash zsh fish"},
		{e2e.Text("zsh", "completion", "bash", ""), ""},
		{e2e.Text("zsh", "items", "push", "photos", "-f", ""), "@file"},
		{e2e.Text("zsh", "task", "apply", "--file=x"), "@file"},
		{e2e.Text("zsh", "agent", "photos", "--", "--js"), ""},
		{e2e.Text("zsh", "nonsense", ""), ""},
		{e2e.Text("zsh", "__"), ""},
		{e2e.Text("bash", "done", "--outcome", "="), "complete return never fail"},
		{e2e.Text("bash", "done", "--outcome", "=", "r"), "return"},
		{e2e.Text("bash", "done", "--outcome", "=", "return", "--af"), "--after"},
		{e2e.Text("bash", "done", "--out"), "--outcome"},
		{e2e.Text("zsh"), ""},
		{nil, ""},
	} {
		got := completes(t, tt.words...)
		if len(tt.words) > 1 && tt.words[1] == "--" {
			got, _, _ = strings.Cut(got, " ")
		}
		if got != tt.want {
			t.Errorf("%q: %q, not %q", tt.words, got, tt.want)
		}
	}
}

// The help of a candidate is short and stands on the candidate's line.
func TestCompletionHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if run(e2e.Text("__complete", "fish", "ta"), &out, &errs) != 0 || out.String() != "task\tManage tasks: list, show, create, change, preview, pause and delete them\n" {
		t.Errorf("%q %s", &out, &errs)
	}
	out.Reset()
	if run(e2e.Text("__complete", "bash", "ta"), &out, &errs) != 0 || out.String() != "task\n" {
		t.Errorf("%q %s", &out, &errs)
	}
}

// The shells that are installed here accept the scripts.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range e2e.Text("bash", "zsh", "fish") {
		var out, errs bytes.Buffer
		if status := run(e2e.Text("completion", shell), &out, &errs); status != 0 || !strings.Contains(out.String(), "__complete "+shell) {
			t.Errorf("%s: %d %s%s", shell, status, &out, &errs)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		check := exec.CommandContext(t.Context(), path, "-n")
		check.Stdin = &out
		if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s: %v %s", shell, err, said)
		}
	}
}

// Bash offers the program's candidates.
func TestCompletionInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here")
	}
	var source, errs bytes.Buffer
	run(e2e.Text("completion", "bash"), &source, &errs)
	dir, binary := filepath.Dir(e2e.Write(t, "")), cluster.Binary(t)
	for line, want := range map[string]string{
		`getwork wo`:                 "work",
		`getwork done --outcome = r`: "return",
		`getwork done --outcome ''`:  "complete return never fail",
		`getwork task apply -f tas`:  "task.yaml",
		`getwork work release --dry`: "--dry-run",
	} {
		script := source.String() + `
COMP_WORDS=(` + strings.Replace(line, "getwork", `"$GETWORK"`, 1) + `); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _getwork; echo "${COMPREPLY[*]}"`
		command := exec.CommandContext(t.Context(), bash, "-c", script)
		command.Dir, command.Env = dir, append(command.Environ(), "GETWORK="+binary)
		out, err := command.Output()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %q, %v, not %q", line, out, err, want)
		}
	}
}
