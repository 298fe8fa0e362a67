//go:build unix

package story

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
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
	e2e.StartAgent(t, s.Nodes[0].URL, "crawl", "--concurrency", "4", "--timeout", "40s", "--", "sh", "-c",
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
	e2e.StartAgent(t, s.Nodes[0].URL, "crawl", "--timeout", "16s", "--", "sh", "-c", `echo at it >&2; sleep 300`)
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
		"getwork agent crawl -- PROGRAM":     {"agent", "crawl"},
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
