package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

// Terminal runs client commands as people do: as processes of the real binary.
type Terminal struct {
	T      *testing.T
	Binary string
	Env    []string
	Stdin  string
}

// NewTerminal starts a node, and returns a terminal of oliver's for it.
func NewTerminal(t *testing.T) Terminal {
	t.Helper()
	node := cluster.Start(t, 1, cluster.Options{DatabaseURL: schematest.URL(t)})[0]
	return Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_URL=" + node.URL, "GETWORK_USER=oliver"}}
}

// Command returns a command of getwork that is not started yet, and the buffers of its output.
func (c Terminal) Command(args ...string) (command *exec.Cmd, out, errs *bytes.Buffer) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	command = exec.CommandContext(c.T.Context(), c.Binary, args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") {
			command.Env = append(command.Env, e)
		}
	}
	// Without this, a program with the race detector lingers for a second at its end.
	command.Env = append(append(command.Env, "GORACE=atexit_sleep_ms=0"), c.Env...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(c.Stdin), out, errs
	return command, out, errs
}

// Run runs a command, and expects an exit status and texts in its output. It returns the standard output.
func (c Terminal) Run(status int, wanted []string, args ...string) (out string) {
	c.T.Helper()
	command, printed, errs := c.Command(args...)
	c.Expect(args, status, wanted, command.Run(), printed.String(), errs.String())
	return printed.String()
}

// Expect fails the test unless a command ended with that status and printed each of the wanted texts.
func (c Terminal) Expect(args []string, status int, wanted []string, err error, out, errs string) {
	c.T.Helper()
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		c.T.Fatalf("getwork %q: %v", args, err)
	}
	if got != status {
		c.T.Errorf("getwork %q exits with %d, not %d\n%s%s", args, got, status, out, errs)
	}
	for _, text := range wanted {
		if !strings.Contains(out+errs, text) {
			c.T.Errorf("getwork %q does not print %q but\n%s%s", args, text, out, errs)
		}
	}
}

// Decode runs a command with --json and decodes its output.
func (c Terminal) Decode(status int, v any, args ...string) {
	c.T.Helper()
	out := c.Run(status, nil, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		c.T.Errorf("getwork %q --json: %v\n%s", args, err, out)
	}
}

// Text returns the texts that an output must contain.
func Text(t ...string) []string { return t }

// Write writes a task file into a temporary folder and returns its path.
func Write(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "task.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// AwaitGone waits until a process has ended, whether or not it was reaped, which depends on its adoptive parent.
func AwaitGone(t *testing.T, pid string) {
	t.Helper()
	id, err := strconv.Atoi(pid)
	if err != nil || id < 2 {
		t.Fatalf("process %q: %v", pid, err)
	}
	Await(t, "process "+pid+" has ended", Soon, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return syscall.Kill(id, 0) != nil || err == nil && strings.Contains(string(stat), ") Z ")
	})
}
