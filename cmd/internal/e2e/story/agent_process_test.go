//go:build unix

package story

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/node"
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
	a.cmd.SysProcAttr = node.Attributes()
	a.cmd.WaitDelay = 5 * time.Second // a program that the agent left behind keeps the output open
	started := make(chan error)
	go func() {
		defer close(a.done)
		// On Linux the agent dies with the thread that started it, so this thread lasts as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := a.cmd.Start()
		started <- err
		if err == nil {
			_ = a.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
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

// Ten processes under one name share a list of 200: each item is done exactly once, and never by two at the same time.
func TestTenAgents(t *testing.T) {
	s := newSite(t, 2, "")
	s.crawl("60s", nil)
	dir := t.TempDir()
	var items []string
	for i := range 200 {
		items = append(items, fmt.Sprintf("page-%03d", i))
	}
	s.push(items...)
	const work = `set -C; : >"$0/now-$GETWORK_ITEM" || { echo "$GETWORK_ITEM twice" >>"$0/clashes"; exit 1; }
echo "$GETWORK_ITEM" >>"$0/done"; rm "$0/now-$GETWORK_ITEM"`
	var agents []*agentProcess
	for i := range 10 {
		agents = append(agents, startAgent(t, s.Nodes[i%2].URL, "crawl", "--once", "--concurrency", "3", "--", "sh", "-c", work, dir))
	}
	for _, a := range agents {
		a.ends(0, 3*time.Minute)
	}
	done := strings.Fields(file(dir + "/done"))
	slices.Sort(done)
	if !slices.Equal(done, items) || file(dir+"/clashes") != "" {
		t.Errorf("%d done; %s", len(done), file(dir+"/clashes"))
	}
	if n := column[int64](s, `select count(*) from getwork.work where state = 'completed'`)[0]; n != 200 {
		t.Errorf("%d are completed", n)
	}
	if n := column[int64](s, `select count(*) from getwork.work`)[0]; n != 200 {
		t.Errorf("%d times something was handed out", n)
	}
	if n := column[int64](s, `select count(distinct instance) from getwork.work`)[0]; n < 2 {
		t.Errorf("%d holders", n)
	}
}

// After kill -9 of an agent, the program that it ran is gone, too, and another agent gets the item when the lease is
// over.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("6s", nil)
	pids := filepath.Join(t.TempDir(), "pids")
	const work = `[ "$GETWORK_ATTEMPT" != 1 ] || { sleep 300 & echo $$ $! >"$0"; wait; }`
	first := startAgent(t, s.Nodes[0].URL, "crawl", "--concurrency", "1", "--", "sh", "-c", work, pids)
	s.push("page")
	e2e.Await(t, "the program runs", e2e.Soon, func() bool { return strings.HasSuffix(file(pids), "\n") })
	second := startAgent(t, s.Nodes[0].URL, "crawl", "--concurrency", "1", "--", "sh", "-c", work, pids)
	second.says("waiting for work", e2e.Soon)
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for pid := range strings.FieldsSeq(file(pids)) {
		e2e.AwaitGone(t, pid)
	}
	s.awaitHistory("page", 40*time.Second, "expired", "completed")
	t.Logf("done by another %v later", time.Since(killed))
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
		t.Errorf("returning burns attempts: %v", attempts)
	}
	after := column[float64](s, `select extract(epoch from after)::float8 from getwork.work where item = '75' and state = 'returned'`)
	if !slices.Equal(after, []float64{0.5}) {
		t.Errorf("returned for %v s", after)
	}
}

// A program that takes too long is stopped, and its work fails.
func TestAgentTimeout(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("12s", map[string]any{"max_attempts": 1})
	s.push("slow")
	startAgent(t, s.Nodes[0].URL, "crawl", "--timeout", "16s", "--", "sh", "-c", `echo at it >&2; sleep 300`)
	s.awaitHistory("slow", time.Minute, "never timed out after 16s: at it") // the lease was extended meanwhile
}

// stoppable is a program that reports when it begins, and when it is asked to stop.
const stoppable = `trap 'echo >"$0/stopped"; exit 0' TERM; echo >"$0/began"; sleep 300 & wait`

// When work is taken away its program is stopped at once, because the news is pushed.
func TestAgentIsToldOfALoss(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("60s", nil)
	dir := t.TempDir()
	a := startAgent(t, s.Nodes[0].URL, "crawl", "--", "sh", "-c", stoppable, dir)
	s.push("taken")
	e2e.Await(t, "the program runs", e2e.Soon, func() bool { return file(dir+"/began") != "" })
	mary := s.As("mary", 0)
	mary.Role = "manager"
	id := column[int64](s, `select id from getwork.work`)[0]
	if _, answer, err := mary.Dispose(t.Context(), id, "never", ""); err != nil || answer.Status != 200 {
		t.Fatalf("%d %s, %v", answer.Status, answer.Body, err)
	}
	e2e.Await(t, "the program is stopped", 15*time.Second, func() bool { return file(dir+"/stopped") != "" })
	a.says("the lease was lost", e2e.Soon)
	s.awaitHistory("taken", 0, "never")
}

// An agent that was frozen for longer than the lease stops its program when it wakes.
func TestAgentFrozen(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("12s", map[string]any{"max_attempts": 1})
	dir := t.TempDir()
	a := startAgent(t, s.Nodes[0].URL, "crawl", "--", "sh", "-c", stoppable, dir)
	s.push("frozen")
	e2e.Await(t, "the program runs", e2e.Soon, func() bool { return file(dir+"/began") != "" })
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.awaitHistory("frozen", time.Minute, "never")
	if file(dir+"/stopped") != "" {
		t.Error("stopped before the agent could know")
	}
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	e2e.Await(t, "the program is stopped", e2e.Soon, func() bool { return file(dir+"/stopped") != "" })
	s.awaitHistory("frozen", 0, "never")
}

// After SIGTERM an agent that waits for work stops waiting; running programs may finish, and work goes back if they do
// not.
func TestAgentDrains(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("20s", nil)
	dir := t.TempDir()
	const work = `echo >>"$0/$GETWORK_ITEM"; [ $GETWORK_ITEM = idle ] || while [ ! -e "$0/go" ]; do sleep 0.05; done`
	args := []string{"crawl", "--concurrency", "1", "--", "sh", "-c", work, dir}
	stop := func(a *agentProcess) {
		t.Helper()
		if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(item string, within time.Duration) {
		t.Helper()
		e2e.Await(t, item+" is worked on", within, func() bool { return file(filepath.Join(dir, item)) != "" })
	}

	idle := startAgent(t, s.Nodes[0].URL, args...)
	s.Await("it waits", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	idle.says("waiting for work", e2e.Soon)
	pushed, still := time.Now(), s.Standstill()
	s.push("idle")
	runs("idle", e2e.Soon)
	if took := time.Since(pushed) - still(); took > 4*time.Second { // by push; by polling it would take five seconds
		t.Errorf("begun %v after the push", took)
	}
	s.awaitHistory("idle", e2e.Soon, "completed")
	s.Await("it waits again", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	stop(idle)
	idle.ends(0, e2e.Soon)
	if left := column[string](s, `select state from getwork.work_requested order by id desc limit 1`); left[0] != "cancelled" {
		t.Errorf("its request is %s", left)
	}

	cut := startAgent(t, s.Nodes[0].URL, append([]string{"--drain-timeout", "300ms", "--kill-after", "1s"}, args...)...)
	s.push("cut")
	runs("cut", e2e.Soon)
	stop(cut)
	cut.ends(0, e2e.Soon)
	if !slices.Equal(s.history("cut"), []string{"returned"}) {
		t.Errorf("cut is %q", s.history("cut"))
	}

	finishing := startAgent(t, s.Nodes[0].URL, args...)
	e2e.Await(t, "the one that was cut is worked on again", e2e.Soon, func() bool { return file(dir+"/cut") == "\n\n" })
	s.push("more")
	stop(finishing)
	finishing.says("draining", e2e.Soon)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	finishing.ends(0, e2e.Soon)
	s.awaitHistory("cut", 0, "returned", "completed")
	s.awaitHistory("more", 0)
}

// front is a proxy before a node that counts the calls; without sockets it lets no WebSocket through.
type front struct {
	*httptest.Server
	mu    sync.Mutex
	calls []string
}

func (s *site) front(sockets bool) *front {
	s.T.Helper()
	target, err := url.Parse(s.Nodes[0].URL)
	if err != nil {
		s.T.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	f := new(front)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.calls = append(f.calls, r.Method+" "+r.URL.Path)
		f.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/ws") && !sockets {
			http.Error(w, "no upgrades here", http.StatusNotImplemented)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	s.T.Cleanup(f.Close)
	return f
}

// count returns how often a call was made.
func (f *front) count(method, suffix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if strings.HasPrefix(c, method+" ") && strings.HasSuffix(c, suffix) {
			n++
		}
	}
	return n
}

// If no WebSocket gets through, the agent polls; and if a node is away, it waits for the node.
func TestAgentWithoutSocket(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("60s", nil) // long enough that work which is found ten seconds late has not expired
	f := s.front(false)
	a := startAgent(t, f.URL, "crawl", "--", "true")
	a.says("the live channel is away", e2e.Soon)
	s.Await("it waits", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	s.push("polled")
	s.awaitHistory("polled", time.Minute, "completed")
	s.Nodes[0].Kill()
	a.says("the server is away", time.Minute)
	s.Nodes[0].Restart()
	s.push("after")
	s.awaitHistory("after", 90*time.Second, "completed")
}

// With a live channel nothing is read twice, and a lease is extended only as often as it must be.
func TestAgentAsksLittle(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("12s", nil)
	f := s.front(true)
	a := startAgent(t, f.URL, "crawl", "--concurrency", "1", "--", "sh", "-c", "sleep $GETWORK_ITEM")
	a.says("waiting for work", e2e.Soon)
	s.Await("it waits", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	s.push("24")
	s.awaitHistory("24", 70*time.Second, "completed")
	s.Await("it waits again", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	for _, most := range []struct {
		n      int
		method string
		suffix string
	}{{8, "POST", "/extend"}, {1, "POST", "/disposition"}, {2, "POST", "/tasks/crawl/requests"}, {2, "GET", ""}, {1, "GET", "/ws"}} {
		n := f.count(most.method, most.suffix)
		if most.suffix == "" { // everything except the socket; after a snapshot that may be older than a request the agent reads that request
			n -= f.count("GET", "/ws") + f.count("GET", "/tasks/crawl")
		}
		if n > most.n {
			t.Errorf("%s …%s was asked %d times, want at most %d", most.method, most.suffix, n, most.n)
		}
	}
	if t.Failed() {
		t.Logf("%q", f.calls)
	}
}

// The node that an agent is connected to dies and comes back: the agent reconnects, and hears of work by push again.
func TestAgentAfterARestart(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("60s", nil)
	dir := t.TempDir()
	a := startAgent(t, s.Nodes[0].URL, "crawl", "--", "sh", "-c", `echo >"$0/began"; while [ ! -e "$0/go" ]; do sleep 0.05; done`, dir)
	s.push("before")
	e2e.Await(t, "the program runs", e2e.Soon, func() bool { return file(dir+"/began") != "" })
	s.Nodes[0].Kill()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.says("the server is away", time.Minute)
	s.Nodes[0].Restart()
	s.awaitHistory("before", time.Minute, "completed")
	a.says("the server is back", time.Minute) // the longest pause between two tries is thirty seconds
	s.Await("it waits", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	s.push("later")
	s.awaitHistory("later", time.Minute, "completed")
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
