package main

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

// terminal runs client commands as people do: as processes of the real binary.
type terminal struct {
	t      *testing.T
	binary string
	env    []string
	stdin  string
}

// newTerminal starts a node and is oliver's terminal beside it.
func newTerminal(t *testing.T) terminal {
	t.Helper()
	node := cluster.Start(t, 1, cluster.Options{DatabaseURL: schematest.URL(t)})[0]
	return terminal{t: t, binary: cluster.Binary(t), env: []string{"GETWORK_URL=" + node.URL, "GETWORK_USER=oliver"}}
}

func (c terminal) command(args ...string) (command *exec.Cmd, out, errs *bytes.Buffer) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	command = exec.CommandContext(c.t.Context(), c.binary, args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") {
			command.Env = append(command.Env, e)
		}
	}
	// With the race detector a program otherwise lingers for a second when it ends.
	command.Env = append(append(command.Env, "GORACE=atexit_sleep_ms=0"), c.env...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(c.stdin), out, errs
	return command, out, errs
}

// run expects an exit status, and texts in what is printed. It returns what went to standard output.
func (c terminal) run(status int, wanted []string, args ...string) (out string) {
	c.t.Helper()
	command, printed, errs := c.command(args...)
	c.expect(args, status, wanted, command.Run(), printed.String(), errs.String())
	return printed.String()
}

func (c terminal) expect(args []string, status int, wanted []string, err error, out, errs string) {
	c.t.Helper()
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		c.t.Fatalf("getwork %q: %v", args, err)
	}
	if got != status {
		c.t.Errorf("getwork %q exits with %d, not %d\n%s%s", args, got, status, out, errs)
	}
	for _, text := range wanted {
		if !strings.Contains(out+errs, text) {
			c.t.Errorf("getwork %q does not print %q but\n%s%s", args, text, out, errs)
		}
	}
}

// decode runs a command with --json.
func (c terminal) decode(status int, v any, args ...string) {
	c.t.Helper()
	out := c.run(status, nil, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		c.t.Errorf("getwork %q --json: %v\n%s", args, err, out)
	}
}

// text are what an output must have in it.
func text(t ...string) []string { return t }

func write(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "task.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// awaitGone waits until a process has ended; whether it was collected depends on who adopted it.
func awaitGone(t *testing.T, pid string) {
	t.Helper()
	id, err := strconv.Atoi(pid)
	if err != nil || id < 2 {
		t.Fatalf("process %q: %v", pid, err)
	}
	await(t, "process "+pid+" has ended", soon, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return syscall.Kill(id, 0) != nil || err == nil && strings.Contains(string(stat), ") Z ")
	})
}
