package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
)

// startedDemo is a process of `getwork demo`.
type startedDemo struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
}

func (d *startedDemo) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

func (d *startedDemo) printed() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

func (d *startedDemo) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// startDemo starts a demo of a small bank on two nodes. It is killed with the test.
func startDemo(t *testing.T, dir string, args ...string) *startedDemo {
	t.Helper()
	if testing.Short() {
		t.Skip("makes a bank")
	}
	d := &startedDemo{t: t, done: make(chan struct{})}
	args = append([]string{"demo", "--nodes", "2", "--listen", "127.0.0.1:0", "--data-dir", dir, "--loans", "60"}, args...)
	d.cmd = exec.Command(cluster.Binary(t), args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") {
			d.cmd.Env = append(d.cmd.Env, e)
		}
	}
	d.cmd.Stdout, d.cmd.Stderr = d, d
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(time.Minute, func() { _ = d.cmd.Process.Kill() })
		<-d.done
		kill.Stop()
		if text := d.printed(); t.Failed() || strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
			t.Errorf("the demo printed:\n%s", text)
		}
	})
	return d
}

var nodeLine = regexp.MustCompile(`(?m)^  node \d+  (http://\S+)`)

// ready waits until the demo serves, and returns its nodes' addresses.
func (d *startedDemo) ready() (urls []string) {
	d.t.Helper()
	await(d.t, "the demo is ready", 3*time.Minute, func() bool {
		return d.ended() || strings.Contains(d.printed(), "Ctrl-C stops all of it.")
	})
	if d.ended() {
		d.t.Fatalf("the demo ended with %v", d.cmd.ProcessState)
	}
	for _, m := range nodeLine.FindAllStringSubmatch(d.printed(), -1) {
		urls = append(urls, m[1])
	}
	if len(urls) < 2 {
		d.t.Fatalf("the demo tells of nodes at %v", urls)
	}
	return urls
}

// page is where the demo's own page is.
func (d *startedDemo) page() string {
	d.t.Helper()
	m := regexp.MustCompile(`(?m)^Open (http://\S+)$`).FindStringSubmatch(d.printed())
	if m == nil {
		d.t.Fatal("the demo tells of no page")
	}
	return m[1]
}

// status waits for the demo's end and returns its exit status.
func (d *startedDemo) status() int {
	d.t.Helper()
	await(d.t, "the demo ends", 5*time.Minute, d.ended)
	return d.cmd.ProcessState.ExitCode()
}

// family are the processes that the demo started, and those that these started. It knows them on Linux only.
func (d *startedDemo) family() []int {
	d.t.Helper()
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	if len(paths) == 0 {
		d.t.Skip("only Linux tells which processes belong to which")
	}
	children := map[int][]int{}
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if s, ok := statOf(strconv.Itoa(pid)); ok {
			children[s.parent] = append(children[s.parent], pid)
		}
	}
	family := children[d.cmd.Process.Pid]
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family
}

// gone waits until none of the processes is left. One that has ended and was not collected doesn't count.
func gone(t *testing.T, pids []int, within time.Duration) {
	t.Helper()
	for _, pid := range pids {
		await(t, fmt.Sprintf("process %d ends", pid), within, func() bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || bytes.Contains(text, []byte(") Z "))
		})
	}
}

// demoDir is a folder that PostgreSQL's own user can reach, which t.TempDir is not.
func demoDir(t *testing.T) string {
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

func TestDemoServesAndEnds(t *testing.T) {
	dir := demoDir(t)
	first := startDemo(t, dir)
	urls := first.ready()
	if !strings.Contains(first.printed(), "write loan rows") {
		t.Error("the first start tells of no progress")
	}
	oliver := cluster.Client{URL: urls[0], User: "Oliver"}
	r, a, err := oliver.GetWork(t.Context(), firstTask, 2, "Prefer", "wait=60")
	if err != nil || a.Status != 201 || r.State != assign.Assigned {
		t.Fatalf("a click: %d %s %v", a.Status, a.Body, err)
	}
	family := first.family()
	if len(family) < 3 {
		t.Errorf("two nodes and PostgreSQL are only %v", family)
	}
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := first.status(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
	gone(t, family, 10*time.Second) // a server that was left behind would end by itself only after 25

	began := time.Now()
	second := startDemo(t, dir)
	urls = second.ready()
	t.Logf("the second start took %v", time.Since(began))
	if strings.Contains(second.printed(), "write loan rows") {
		t.Error("the second start made the bank again")
	}
	p, err := cluster.Client{URL: urls[1], User: "Oliver"}.Pipeline(t.Context())
	if err != nil || len(p.Work) != 2 {
		t.Errorf("after a restart Oliver holds %v, %v", p.Work, err)
	}
	var task assign.Task
	if a, err = oliverAt(urls[1]).Do(t.Context(), "GET", "/api/v1/tasks/"+firstTask, nil); err == nil {
		err = a.Decode(&task)
	}
	if err != nil || task.Version != 1 {
		t.Errorf("the first task is at version %d, %v; nothing of it was changed", task.Version, err)
	}
	third := startDemo(t, dir)
	if status := third.status(); status != 1 || !strings.Contains(third.printed(), "is in use by another process") || !strings.Contains(third.printed(), "open "+second.page()) {
		t.Errorf("another demo on the same data ends with %d and says %q", status, third.printed())
	}
}

func oliverAt(url string) cluster.Client { return cluster.Client{URL: url, User: "Oliver"} }

func TestDemoKilled(t *testing.T) {
	d := startDemo(t, demoDir(t))
	d.ready()
	family := d.family()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.done
	gone(t, family, 30*time.Second)
}

func TestDemoLosesNode(t *testing.T) {
	d := startDemo(t, demoDir(t))
	d.ready()
	family := d.family()
	var nodes []int
	for _, pid := range family {
		program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if program == cluster.Binary(t) {
			nodes = append(nodes, pid)
		}
	}
	if len(nodes) != 2 {
		t.Fatalf("of %v %v are nodes, want two", family, nodes)
	}
	for i, says := range []string{"the other 1 go on", "ended unexpectedly; it last said"} {
		if err := syscall.Kill(nodes[i], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "the demo says that "+says, time.Minute, func() bool { return strings.Contains(d.printed(), says) })
	}
	if status := d.status(); status != 1 {
		t.Errorf("without nodes the demo ends with %d and says %q", status, d.printed())
	}
	gone(t, family, 15*time.Second)
}

func TestDemoPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	d := startDemo(t, demoDir(t), "--listen", address)
	if status := d.status(); status != 1 || !strings.Contains(d.printed(), address+" is in use: ") {
		t.Errorf("on a port in use the demo ends with %d and says %q", status, d.printed())
	}
}

func TestDemoRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--nodes", "0"}, {"--loans", "3"}, {"--listen", "0.0.0.0:8080"}, {"--listen", "127.0.0.1:65535"}, {"--listen", "8080"},
		{"--naive", "--users", "0"}, {"--naive", "--within", "1h"}, {"--naive", "--count", "6"},
	} {
		var out, errs bytes.Buffer
		// With a folder that can't be made, so that what is let through by mistake makes nothing.
		args = append([]string{"demo", "--data-dir", "/dev/null/demo"}, args...)
		if status := run(args, &out, &errs); status != exitUsage {
			t.Errorf("%q: exit status %d, %s", args, status, errs.String())
		}
	}
}

var cell = regexp.MustCompile(`(?m)^(queries run|assignments|duplicate assignments|users not served) +(\d+) +(\d+)$`)

func TestDemoNaive(t *testing.T) {
	d := startDemo(t, demoDir(t), "--naive", "--users", "6", "--within", "0s", "--loans", "400")
	if status := d.status(); status != 0 {
		t.Fatalf("exit status %d", status)
	}
	figures := map[string][2]int{}
	for _, m := range cell.FindAllStringSubmatch(d.printed(), -1) {
		naive, _ := strconv.Atoi(m[2])
		shared, _ := strconv.Atoi(m[3])
		figures[m[1]] = [2]int{naive, shared}
	}
	t.Logf("%v", figures)
	if q := figures["queries run"]; q[0] != 6 || q[1] < 1 || q[1] > 5 {
		t.Errorf("queries run: %v", q)
	}
	if a := figures["assignments"]; a != [2]int{18, 18} {
		t.Errorf("assignments: %v", a)
	}
	if twice, told := figures["duplicate assignments"]; !told || twice[0] == 0 || twice[1] != 0 {
		t.Errorf("duplicate assignments: %v", twice)
	}
}
