package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

func nothing(context.Context, assign.Work) error { return nil }

// A handler's error decides the work's disposition.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "fine", "later", "wrapped", "beside", "joined", "after", "long after", "fails", "garbage", "panics")
	a := d.agent(func(_ context.Context, w assign.Work) error {
		switch w.Item {
		case "later":
			return ErrLater
		case "wrapped":
			return fmt.Errorf("the site is down: %w", ErrLater)
		case "beside":
			return fmt.Errorf("%w: %w", ErrLater, errors.New("the site is down"))
		case "joined":
			return errors.Join(ReturnAfter(90*time.Second, "closed today"), errors.New("the site is down"))
		case "after":
			return ReturnAfter(90*time.Second, "closed today")
		case "long after":
			return ReturnAfter(1000*time.Hour, "")
		case "fails":
			return errors.New("no such page")
		case "garbage":
			return errors.New("a\x00b\xff" + strings.Repeat("é", maxText))
		case "panics":
			panic("oh")
		}
		return nil
	})
	a.Once = true
	if err := a.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for item, want := range map[string]assign.Disposition{
		"fine":       {Outcome: "complete"},
		"later":      {Outcome: "return", After: after(7 * time.Second)},
		"wrapped":    {Outcome: "return", After: after(7 * time.Second), Note: new("the site is down: later")},
		"beside":     {Outcome: "return", After: after(7 * time.Second), Note: new("later: the site is down")},
		"joined":     {Outcome: "return", After: after(90 * time.Second), Note: new("return after 90s: closed today\nthe site is down")},
		"after":      {Outcome: "return", After: after(90 * time.Second), Note: new("closed today")},
		"long after": {Outcome: "return", After: after(72 * time.Hour)},
		"fails":      {Outcome: "fail", Error: new("no such page")},
		"garbage":    {Outcome: "fail", Error: new("ab\uFFFD" + strings.Repeat("é", (maxText-5)/2))},
		"panics":     {Outcome: "fail", Error: new("panic: oh")},
	} {
		b, _ := json.Marshal(want)
		if d.said[item] != string(b) {
			t.Errorf("%s: said %s, want %s", item, d.said[item], b)
		}
	}
}

func after(d time.Duration) *assign.Duration { return (*assign.Duration)(&d) }

// An agent that can't work ends with the reason.
func TestRefused(t *testing.T) {
	t.Parallel()
	for status, on := range map[int]string{401: "GET /api/v1/pipeline", 403: "POST /api/v1/tasks/crawl/requests", 404: "GET /api/v1/tasks/crawl", 400: "POST /api/v1/tasks/crawl/requests"} {
		d := newDesk(t)
		d.fault = func(w http.ResponseWriter, r *http.Request, _ bool) bool {
			if r.Method+" "+r.URL.Path != on {
				return false
			}
			refuse(w, status, "no")
			return true
		}
		err := d.agent(nothing).Run(t.Context())
		var r *client.Problem
		if !errors.As(err, &r) || r.Status != status || err.Error() != "no it is" {
			t.Errorf("%d: %v", status, err)
		}
	}
	for _, a := range []Agent{
		{URL: "localhost:8080", Task: "crawl", User: "x", Handler: HandlerFunc(nothing)},
		{URL: "http://localhost", User: "x", Handler: HandlerFunc(nothing)},
		{URL: "http://localhost", Task: "crawl", User: "x"},
		{URL: "http://localhost", Task: "crawl", Handler: HandlerFunc(nothing)},
		{URL: "http://localhost", Task: "crawl", User: "x", Handler: HandlerFunc(nothing), Concurrency: -1},
		{URL: "http://localhost", Task: "crawl", User: "x", Handler: HandlerFunc(nothing), Instance: "a b"},
	} {
		if err := a.Run(t.Context()); err == nil {
			t.Errorf("%+v runs", a)
		}
	}
}

// An agent runs also in a program that has replaced http.DefaultTransport. Not in parallel, because that is everybody's.
func TestReplacedDefaultTransport(t *testing.T) {
	was := http.DefaultTransport
	defer func() { http.DefaultTransport = was }()
	http.DefaultTransport = struct{ http.RoundTripper }{was}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := Agent{URL: "http://127.0.0.1:1", User: "x", Task: "crawl", Handler: HandlerFunc(nothing)}
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
}

// Every third call is answered 503, and every third is executed with its answer lost. Still each item is worked on once, no
// work is held without an agent that knows of it, and never are more items in progress than allowed.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var items []string
		for i := range 20 {
			items = append(items, fmt.Sprint("item ", i))
		}
		d := newDesk(t, items...)
		n := 0
		d.fault = func(w http.ResponseWriter, r *http.Request, before bool) bool {
			if r.URL.Path == "/api/v1/ws" {
				return false
			}
			if before {
				n++
			}
			switch {
			case n%3 == 0 && !before:
				panic(http.ErrAbortHandler)
			case n%9 == 1 && before:
				refuse(w, 502, "unavailable")
				return true
			}
			return false
		}
		var mu sync.Mutex
		worked := map[string]int{}
		a := d.agent(func(_ context.Context, w assign.Work) error {
			mu.Lock()
			defer mu.Unlock()
			worked[w.Item]++
			return nil
		})
		a.Once, a.Concurrency = true, 4
		if err := a.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			if worked[item] != 1 || d.said[item] != `{"outcome":"complete"}` {
				t.Errorf("%s: worked on %d times, said %q", item, worked[item], d.said[item])
			}
		}
		if d.most > 4 {
			t.Errorf("%d in hand at the same time", d.most)
		}
	})
}

// An agent that starts while the server is away waits for it.
func TestServerAwayAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "a")
		away := true
		d.fault = func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
			if away {
				panic(http.ErrAbortHandler)
			}
			return false
		}
		d.start(d.agent(nothing))
		d.await("it has asked twice", func() bool { return len(d.calls) >= 2 })
		d.do(func() { away = false })
		d.await("the item is done", func() bool { return d.said["a"] != "" })
	})
}

// Without a live channel a waiting request is read as often as the node says.
func TestPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		began := time.Now()
		d.start(d.agent(nothing))
		d.await("it has looked three times", func() bool {
			n := 0
			for _, c := range d.calls {
				if c == "GET /requests/1" {
					n++
				}
			}
			return n >= 3
		})
		if took := time.Since(began); took < 2800*time.Millisecond { // Retry-After is 1 here
			t.Errorf("three looks within %v", took)
		}
		d.do(func() {
			d.items = []string{"a"}
			d.serve(d.requests[0])
		})
		d.await("the item is done", func() bool { return d.said["a"] != "" })
		if n := d.count("POST /tasks/crawl/requests"); n > 2 {
			t.Errorf("asked for work %d times", n)
		}
	})
}

// If the lease is shorter than the time that the node says, the request is read sooner: an unknown lease is not renewed.
func TestPollingShortLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		lease := assign.Duration(3 * time.Second)
		d.task.Lease, d.again = &lease, 3600
		d.start(d.agent(nothing))
		d.await("it asks", func() bool { return slices.Contains(d.calls, "POST /tasks/crawl/requests") })
		d.do(func() {
			d.items = []string{"a"}
			d.serve(d.requests[0])
		})
		d.await("the item is done", func() bool { return d.said["a"] != "" })
	})
}

// So it is while the live channel seems to be open: its other end may be gone.
func TestPollingSilentChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.lease = 10 * time.Second
		a := d.agent(nothing)
		a.Lease = d.lease
		full, err := a.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		s := &session{Agent: full, server: newServer(&full), channel: newChannel(), jobs: map[int64]*job{}, ended: make(chan struct{}, 1)}
		defer s.server.transport.CloseIdleConnections()
		s.channel.live = true
		time.AfterFunc(6*time.Second, func() {
			d.do(func() {
				d.items = []string{"a"}
				d.serve(d.requests[0])
			})
		})
		r, err := s.getWork(t.Context(), 1)
		if err != nil || len(r.Work) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if left := time.Until(*r.Work[0].LeaseExpiresAt); left < d.lease/3 {
			t.Errorf("it heard of the work when %v of its lease was left", left)
		}
	})
}
