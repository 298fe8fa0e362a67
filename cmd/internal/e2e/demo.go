package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest/logs"
)

// StartedDemo is a process of `getwork demo`.
type StartedDemo struct {
	T    *testing.T
	Cmd  *exec.Cmd
	Done chan struct{}
	out  logs.Buffer
}

// Printed returns what the demo has printed so far.
func (d *StartedDemo) Printed() string { return d.out.String() }

func (d *StartedDemo) ended() bool {
	select {
	case <-d.Done:
		return true
	default:
		return false
	}
}

// StartDemo starts a demo of a small bank on two nodes. It is killed with the test.
func StartDemo(t *testing.T, dir string, args ...string) *StartedDemo {
	t.Helper()
	d := &StartedDemo{T: t, Done: make(chan struct{})}
	args = append([]string{"demo", "--nodes", "2", "--listen", "127.0.0.1:0", "--data-dir", dir, "--loans", "60"}, args...)
	d.Cmd = exec.Command(cluster.Binary(t), args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") {
			d.Cmd.Env = append(d.Cmd.Env, e)
		}
	}
	d.Cmd.Stdout, d.Cmd.Stderr = &d.out, &d.out
	if err := d.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.Cmd.Wait()
		close(d.Done)
	}()
	t.Cleanup(func() {
		_ = d.Cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(time.Minute, func() { _ = d.Cmd.Process.Kill() })
		<-d.Done
		kill.Stop()
		if text := d.Printed(); t.Failed() || strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
			t.Errorf("the demo printed:\n%s", text)
		}
	})
	return d
}

var nodeLine = regexp.MustCompile(`(?m)^  node \d+  (http://\S+)`)

// Ready waits until the demo serves, and returns its nodes' addresses.
func (d *StartedDemo) Ready() (urls []string) {
	d.T.Helper()
	Await(d.T, "the demo is ready", 3*time.Minute, func() bool {
		return d.ended() || strings.Contains(d.Printed(), "Ctrl-C stops everything.")
	})
	if d.ended() {
		d.T.Fatalf("the demo ended with %v", d.Cmd.ProcessState)
	}
	for _, m := range nodeLine.FindAllStringSubmatch(d.Printed(), -1) {
		urls = append(urls, m[1])
	}
	if len(urls) < 2 {
		d.T.Fatalf("the demo prints these nodes: %v", urls)
	}
	return urls
}

// Page returns the address of the demo's own page.
func (d *StartedDemo) Page() string {
	d.T.Helper()
	m := regexp.MustCompile(`(?m)^Open (http://\S+)$`).FindStringSubmatch(d.Printed())
	if m == nil {
		d.T.Fatal("the demo prints no page's address")
	}
	return m[1]
}

// Status waits for the demo's end and returns its exit status.
func (d *StartedDemo) Status() int {
	d.T.Helper()
	Await(d.T, "the demo ends", 5*time.Minute, d.ended)
	return d.Cmd.ProcessState.ExitCode()
}

// Family returns the processes that the demo started, and those that these started. It works on Linux only.
func (d *StartedDemo) Family() []int {
	d.T.Helper()
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	if len(paths) == 0 {
		d.T.Skip("only Linux tells which processes belong to which")
	}
	children := map[int][]int{}
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if parent, ok := parentOf(path); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	family := children[d.Cmd.Process.Pid]
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family
}

// Gone waits until none of the processes is left. A process that has ended but was not reaped doesn't count.
func Gone(t *testing.T, pids []int, within time.Duration) {
	t.Helper()
	for _, pid := range pids {
		Await(t, fmt.Sprintf("process %d ends", pid), within, func() bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || bytes.Contains(text, []byte(") Z "))
		})
	}
}

// DemoDir returns a folder that PostgreSQL's own user can reach, unlike t.TempDir.
func DemoDir(t *testing.T) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "getwork-demo-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(parent, "demo")
}

// parentOf reads a process's parent from its /proc/PID/stat, see proc(5). The name in brackets may hold any character.
func parentOf(path string) (pid int, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	pid, err = strconv.Atoi(fields[1])
	return pid, err == nil
}
