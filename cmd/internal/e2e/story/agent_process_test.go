//go:build unix

package story

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/node"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// crawl creates an inbox with a lease, and further settings if given.
func (s *site) crawl(lease string, more map[string]any) {
	s.T.Helper()
	settings := map[string]any{"name": "crawl", "query": nil, "lease": lease, "backoff": "1s"}
	for name, value := range more {
		settings[name] = value
	}
	if err := s.As("mary", 0).CreateTask(s.T.Context(), settings); err != nil {
		s.T.Fatal(err)
	}
}

// push pushes items to it.
func (s *site) push(items ...string) {
	s.T.Helper()
	body := make([]map[string]string, len(items))
	for i, item := range items {
		body[i] = map[string]string{"item": item}
	}
	mary := s.As("mary", 0)
	mary.Role = "manager"
	if a, err := mary.Do(s.T.Context(), "POST", "/api/v1/tasks/crawl/items", body); err != nil || a.Status != 200 {
		s.T.Fatalf("push: %d %s, %v", a.Status, a.Body, err)
	}
}

// history returns the outcome of each attempt at an item, in order.
func (s *site) history(item string) []string {
	s.T.Helper()
	return column[string](s, `select state || coalesce(' ' || error, '') from getwork.work where item = $1 order by id`, item)
}

func (s *site) awaitHistory(item string, within time.Duration, want ...string) {
	s.T.Helper()
	var got []string
	defer func() {
		if s.T.Failed() {
			s.T.Logf("%s is %q, want %q", item, got, want)
		}
	}()
	e2e.Await(s.T, "what becomes of "+item, within, func() bool {
		got = s.history(item)
		return slices.Equal(got, want)
	})
}

// agentProcess is a process of `getwork agent`.
type agentProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	out  *printed
}

// printed is a process's output, which can be read while the process runs.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// startAgent starts an agent for a node's address, and kills it after the test.
func startAgent(t *testing.T, address string, args ...string) *agentProcess {
	t.Helper()
	a := &agentProcess{t: t, done: make(chan struct{}), out: new(printed)}
	a.cmd = exec.Command(cluster.Binary(t), append([]string{"agent", "--url", address, "--user", "crawler"}, args...)...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") {
			a.cmd.Env = append(a.cmd.Env, e)
		}
	}
	a.cmd.Env = append(a.cmd.Env, "GORACE=atexit_sleep_ms=0")
	a.cmd.Stdout, a.cmd.Stderr = a.out, a.out
	a.cmd.WaitDelay = 5 * time.Second // a program that the agent left behind keeps the output open
	if err := node.Tie(a.cmd, func(error) { close(a.done) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
		<-a.done
		if strings.Contains(a.out.String(), "DATA RACE") || strings.Contains(a.out.String(), "goroutine ") {
			t.Error("an agent reports a data race or a panic")
		}
		if t.Failed() {
			t.Logf("agent %d printed:\n%s", a.cmd.Process.Pid, a.out)
		}
	})
	return a
}

// says waits until the agent has printed a text.
func (a *agentProcess) says(text string, within time.Duration) {
	a.t.Helper()
	e2e.Await(a.t, "an agent says "+text, within, func() bool { return strings.Contains(a.out.String(), text) })
}

// ends waits until the agent has ended by itself, and checks its exit status.
func (a *agentProcess) ends(status int, within time.Duration) {
	a.t.Helper()
	select {
	case <-a.done:
		if got := a.cmd.ProcessState.ExitCode(); got != status {
			a.t.Errorf("the agent exits with %d, not %d", got, status)
		}
	case <-time.After(timeout.Scale(within)):
		a.t.Fatalf("the agent has not ended within %v", within)
	}
}

// file returns the content of a program's file, or "".
func file(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// A program's exit status decides what happens to its item.
func TestAgentExitStatus(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("60s", map[string]any{"max_attempts": 2, "backoff": "500ms"})
	s.push("0", "1", "75", "9")
	startAgent(t, s.Nodes[0].URL, "crawl", "--concurrency", "4", "--timeout", "40s", "--", "sh", "-c",
		`echo "status $GETWORK_ITEM" >&2; [ $GETWORK_ITEM != 9 ] || kill -9 $$; [ $GETWORK_ITEM$GETWORK_ATTEMPT != 12 ] || exit 0; [ $GETWORK_ITEM = 75 ] && [ -e "$0" ] && exit 0; [ $GETWORK_ITEM != 75 ] || : >"$0"; exit $GETWORK_ITEM`,
		filepath.Join(t.TempDir(), "again"))
	s.awaitHistory("0", e2e.Soon, "completed")
	s.awaitHistory("1", e2e.Soon, "failed exit status 1: status 1", "completed")
	s.awaitHistory("75", e2e.Soon, "returned", "completed")
	s.awaitHistory("9", e2e.Soon, "failed signal: killed: status 9", "never signal: killed: status 9")
	attempts := column[int32](s, `select attempt from getwork.work where item = '75' order by id`)
	if !slices.Equal(attempts, []int32{1, 1}) {
		t.Errorf("returns count as attempts: %v", attempts)
	}
	after := column[float64](s, `select extract(epoch from after)::float8 from getwork.work where item = '75' and state = 'returned'`)
	if !slices.Equal(after, []float64{0.5}) {
		t.Errorf("returned for %v s", after)
	}
}

// A program that takes too long is stopped, and its work fails.
func TestAgentTimeout(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	s := newSite(t, 1, "")
	s.crawl("12s", map[string]any{"max_attempts": 1})
	s.push("slow")
	startAgent(t, s.Nodes[0].URL, "crawl", "--timeout", "16s", "--", "sh", "-c", `echo at it >&2; sleep 300`)
	s.awaitHistory("slow", time.Minute, "never timed out after 16s: at it") // the lease was extended meanwhile
}

func TestAgentUsage(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("60s", nil)
	s.push("1", "2", "3", "4", "5", "6", "7")
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_URL=" + s.Nodes[0].URL, "GETWORK_USER=oliver"}}
	c.Run(1, e2e.Text("no task \"nope\"; `getwork task list` lists"), "agent", "nope", "--", "true")
	out := c.Run(0, nil, "agent", "crawl", "--once", "--", "sh", "-c", `echo "item $GETWORK_ITEM of $GETWORK_TASK"`)
	for i := range 7 {
		if !strings.Contains(out, fmt.Sprintf("item %d of crawl\n", i+1)) {
			t.Errorf("item %d is missing in\n%s", i+1, out)
		}
	}
	c.Run(0, nil, "task", "pause", "crawl")
	c.Run(1, e2e.Text("task crawl is paused"), "agent", "crawl", "--once", "--", "true")
	byToken := c
	byToken.Env = c.Env[:1]
	byToken.Run(1, e2e.Text("say who you are"), "agent", "crawl", "--token", "gw_x", "--", "true")
	for says, args := range map[string][]string{
		"name the program to run":            {"agent", "crawl", "--", ""},
		"expected":                           {"agent", "crawl"},
		`can't run "no-such-program"`:        {"agent", "crawl", "--", "no-such-program"},
		"--concurrency must be from 1":       {"agent", "crawl", "--concurrency", "0", "--", "true"},
		"--lease must be from 1s to 24h":     {"agent", "crawl", "--lease", "1ms", "--", "true"},
		"--timeout must be 0s or more":       {"agent", "crawl", "--timeout=-1s", "--", "true"},
		"--kill-after must be 0s or more":    {"agent", "crawl", "--kill-after=-1s", "--", "true"},
		"--drain-timeout must be 0s or more": {"agent", "crawl", "--drain-timeout=-1s", "--", "true"},
		"--role must be worker":              {"agent", "crawl", "--role", "boss", "--", "true"},
		"--url must be an address":           {"agent", "crawl", "--url", "localhost", "--", "true"},
		"a token identifies the user":        {"agent", "crawl", "--token", "gw_x", "--", "true"},
		"an instance is made of":             {"agent", "crawl", "--instance", "a b", "--", "true"},
	} {
		c.Run(2, e2e.Text(says), args...)
	}
}
