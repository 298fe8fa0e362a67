//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/node"
	"getwork/schema/schematest/logs"
	"getwork/schema/schematest/timeout"
)

// Agent is a process of `getwork agent`.
type Agent struct {
	t    *testing.T
	Cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	out  logs.Buffer
}

// StartAgent starts an agent for a node's address, and kills it after the test.
func StartAgent(t *testing.T, address string, args ...string) *Agent {
	t.Helper()
	a := &Agent{t: t, done: make(chan struct{})}
	a.Cmd = exec.Command(cluster.Binary(t), append([]string{"agent", "--url", address, "--user", "crawler"}, args...)...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") {
			a.Cmd.Env = append(a.Cmd.Env, e)
		}
	}
	a.Cmd.Env = append(a.Cmd.Env, "GORACE=atexit_sleep_ms=0")
	a.Cmd.Stdout, a.Cmd.Stderr = &a.out, &a.out
	a.Cmd.WaitDelay = 5 * time.Second // a program that the agent left behind keeps the output open
	if err := node.Tie(a.Cmd, func(error) { close(a.done) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-a.Cmd.Process.Pid, syscall.SIGKILL)
		<-a.done
		if strings.Contains(a.out.String(), "DATA RACE") || strings.Contains(a.out.String(), "goroutine ") {
			t.Error("an agent reports a data race or a panic")
		}
		if t.Failed() {
			t.Logf("agent %d printed:\n%s", a.Cmd.Process.Pid, a.out.String())
		}
	})
	return a
}

// Says waits until the agent has printed a text.
func (a *Agent) Says(text string, within time.Duration) {
	a.t.Helper()
	Await(a.t, "an agent says "+text, within, func() bool { return strings.Contains(a.out.String(), text) })
}

// Ends waits until the agent has ended by itself, and checks its exit status.
func (a *Agent) Ends(status int, within time.Duration) {
	a.t.Helper()
	select {
	case <-a.done:
		if got := a.Cmd.ProcessState.ExitCode(); got != status {
			a.t.Errorf("the agent exits with %d, not %d", got, status)
		}
	case <-time.After(timeout.Scale(within)):
		a.t.Fatalf("the agent has not ended within %v", within)
	}
}
