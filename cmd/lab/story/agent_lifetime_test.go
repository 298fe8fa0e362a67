//go:build unix

package story

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

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
	var agents []*e2e.Agent
	for i := range 10 {
		agents = append(agents, e2e.StartAgent(t, s.Nodes[i%2].URL, "crawl", "--once", "--concurrency", "3", "--", "sh", "-c", work, dir))
	}
	for _, a := range agents {
		a.Ends(0, 3*time.Minute)
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
		t.Errorf("items were handed out %d times", n)
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
	first := e2e.StartAgent(t, s.Nodes[0].URL, "crawl", "--concurrency", "1", "--", "sh", "-c", work, pids)
	s.push("page")
	e2e.Await(t, "the program runs", e2e.Soon, func() bool { return strings.HasSuffix(file(pids), "\n") })
	second := e2e.StartAgent(t, s.Nodes[0].URL, "crawl", "--concurrency", "1", "--", "sh", "-c", work, pids)
	second.Says("waiting for work", e2e.Soon)
	if err := first.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for pid := range strings.FieldsSeq(file(pids)) {
		e2e.AwaitGone(t, pid)
	}
	s.awaitHistory("page", 40*time.Second, "expired", "completed")
	t.Logf("another agent finished the item %v later", time.Since(killed))
}

// stoppable is a program that reports when it begins, and when it is asked to stop.
const stoppable = `trap 'echo >"$0/stopped"; exit 0' TERM; echo >"$0/began"; sleep 300 & wait`

// When work is taken away its program is stopped at once, because the news is pushed.
func TestAgentIsToldOfALoss(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	s := newSite(t, 1, "")
	s.crawl("60s", nil)
	dir := t.TempDir()
	a := e2e.StartAgent(t, s.Nodes[0].URL, "crawl", "--", "sh", "-c", stoppable, dir)
	s.push("taken")
	e2e.Await(t, "the program runs", e2e.Soon, func() bool { return file(dir+"/began") != "" })
	mary := s.As("mary", 0)
	mary.Role = "manager"
	id := column[int64](s, `select id from getwork.work`)[0]
	if _, answer, err := mary.Dispose(t.Context(), id, "never", ""); err != nil || answer.Status != 200 {
		t.Fatalf("%d %s, %v", answer.Status, answer.Body, err)
	}
	e2e.Await(t, "the program is stopped", 15*time.Second, func() bool { return file(dir+"/stopped") != "" })
	a.Says("the lease was lost", e2e.Soon)
	s.awaitHistory("taken", 0, "never")
}

// After SIGTERM an agent that waits for work stops waiting; running programs may finish, and work goes back if they do
// not.
func TestAgentDrains(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := newSite(t, 1, "")
	s.crawl("20s", nil)
	dir := t.TempDir()
	const work = `echo >>"$0/$GETWORK_ITEM"; [ $GETWORK_ITEM = idle ] || while [ ! -e "$0/go" ]; do sleep 0.05; done`
	args := []string{"crawl", "--concurrency", "1", "--", "sh", "-c", work, dir}
	stop := func(a *e2e.Agent) {
		t.Helper()
		if err := a.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(item string, within time.Duration) {
		t.Helper()
		e2e.Await(t, item+" is worked on", within, func() bool { return file(filepath.Join(dir, item)) != "" })
	}

	idle := e2e.StartAgent(t, s.Nodes[0].URL, args...)
	s.Await("it waits", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	idle.Says("waiting for work", e2e.Soon)
	pushed, still := time.Now(), s.Standstill()
	s.push("idle")
	runs("idle", e2e.Soon)
	if took := time.Since(pushed) - still(); took > 4*time.Second { // by push; by polling it would take five seconds
		t.Errorf("begun %v after the push", took)
	}
	s.awaitHistory("idle", e2e.Soon, "completed")
	s.Await("it waits again", e2e.Soon, `select count(*) = 1 from getwork.work_requested where state = 'pending'`)
	stop(idle)
	idle.Ends(0, e2e.Soon)
	if left := column[string](s, `select state from getwork.work_requested order by id desc limit 1`); left[0] != "cancelled" {
		t.Errorf("its request is %s", left)
	}

	cut := e2e.StartAgent(t, s.Nodes[0].URL, append([]string{"--drain-timeout", "300ms", "--kill-after", "1s"}, args...)...)
	s.push("cut")
	runs("cut", e2e.Soon)
	stop(cut)
	cut.Ends(0, e2e.Soon)
	if !slices.Equal(s.history("cut"), []string{"returned"}) {
		t.Errorf("cut is %q", s.history("cut"))
	}

	finishing := e2e.StartAgent(t, s.Nodes[0].URL, args...)
	e2e.Await(t, "the interrupted item is worked on again", e2e.Soon, func() bool { return file(dir+"/cut") == "\n\n" })
	s.push("more")
	stop(finishing)
	finishing.Says("draining", e2e.Soon)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	finishing.Ends(0, e2e.Soon)
	s.awaitHistory("cut", 0, "returned", "completed")
	s.awaitHistory("more", 0)
}
