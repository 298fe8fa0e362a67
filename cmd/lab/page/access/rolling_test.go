package access

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// Three nodes behind each proxy of docs/proxy.md are replaced as docs/upgrade.md says, one right after the other, while people
// work. Every call is answered 2xx at the first attempt, commands too, which a proxy never sends twice.
func TestUpgradeBehindProxies(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, behind := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const people = 20
			drain := timeout.Scale(15 * time.Second) // as nodes have it, so that HAProxy notices within a fifth
			s := e2e.NewSite(t, 3, "", "--drain-timeout", drain.String())
			err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "verify",
				"query": `select i as item from generate_series(1, 2000) i`, "fresh_for": "10s"})
			if err != nil {
				t.Fatal(err)
			}
			u := upgrade{url: behind(t, []string{s.Nodes[0].URL, s.Nodes[1].URL, s.Nodes[2].URL}, nil), over: make(chan struct{}), bad: map[string]int{}}
			var g errgroup.Group
			for i := range people {
				g.Go(func() error { u.work(t.Context(), fmt.Sprintf("user-%d", i)); return nil })
			}
			u.goOn(t)
			for _, n := range s.Nodes {
				began, still := time.Now(), s.Standstill()
				if err := n.Terminate(); err != nil || time.Since(began)-still() > drain {
					t.Errorf("node %s ended after %v: %v", n.URL, time.Since(began), err)
				}
				t.Logf("node %s ended after %v", n.URL, time.Since(began))
				n.Restart()
			}
			u.goOn(t)
			close(u.over)
			_ = g.Wait()
			for what, times := range u.bad {
				t.Errorf("%d of %d calls: %s", times, u.calls.Load(), what)
			}
			t.Logf("%d calls", u.calls.Load())
		})
	}
}

// upgrade is the load while nodes are replaced.
type upgrade struct {
	url   string
	over  chan struct{}
	calls atomic.Int64

	mu  sync.Mutex
	bad map[string]int // what was answered otherwise than 2xx, and how often
}

// goOn waits for some more calls.
func (u *upgrade) goOn(t *testing.T) {
	t.Helper()
	until := u.calls.Load() + 300
	e2e.Await(t, "calls go on", 2*time.Minute, func() bool { return u.calls.Load() >= until })
}

// work is a person who clicks, completes what they get, and reads their pipeline; and a manager who asks about an item.
func (u *upgrade) work(ctx context.Context, user string) {
	c := &http.Client{Transport: &http.Transport{}, Timeout: timeout.Scale(30 * time.Second)}
	defer c.CloseIdleConnections()
	for {
		select {
		case <-u.over:
			return
		default:
		}
		var r assign.Request
		u.call(ctx, c, user, "POST", "/api/v1/tasks/verify/requests", `{"count":1}`, &r)
		for _, w := range r.Work {
			u.call(ctx, c, user, "POST", fmt.Sprintf("/api/v1/work/%d/disposition", w.ID), `{"outcome":"complete"}`, nil)
		}
		u.call(ctx, c, user, "GET", "/api/v1/pipeline", "", nil)
		u.call(ctx, c, user, "GET", "/api/v1/tasks/verify/items/1", "", nil)
	}
}

func (u *upgrade) call(ctx context.Context, c *http.Client, user, method, path, body string, into any) {
	u.calls.Add(1)
	said := func() string {
		r, err := http.NewRequestWithContext(ctx, method, u.url+path, strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		r.Header = http.Header{"X-Getwork-User": {user}, "X-Getwork-Role": {"manager"}, "Prefer": {"wait=1"}}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		answer, err := c.Do(r)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if answer.StatusCode/100 == 2 && err == nil && into != nil {
			err = json.Unmarshal(b, into)
		}
		if answer.StatusCode/100 != 2 || err != nil {
			return fmt.Sprintf("%s %s: %d %.200s %v", method, path, answer.StatusCode, bytes.ReplaceAll(b, []byte("\n"), nil), err)
		}
		return ""
	}()
	if said != "" {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.bad[regexp.MustCompile(`\d{3,}/|"instance".*`).ReplaceAllString(said, "")]++
	}
}
