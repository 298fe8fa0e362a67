package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	d := newDesk(t, "fine", "later", "wrapped", "beside", "joined", "after", "long after", "fails", "garbage", "panics", "decided", "back", "wrong")
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
		case "decided":
			return fmt.Errorf("so it is: %w", As(assign.Disposition{Outcome: "never", Note: new("spam")}))
		case "back":
			return As(assign.Disposition{Outcome: "return", To: new("others")})
		case "wrong":
			return As(assign.Disposition{Outcome: "done"})
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
		"decided":    {Outcome: "never", Note: new("spam")},
		"back":       {Outcome: "return", After: after(7 * time.Second), To: new("others")},
		"wrong":      {Outcome: "fail", Error: new(`the result is not valid: outcome is "complete", "return", "never" or "fail", not "done"`)},
	} {
		b, _ := json.Marshal(want)
		if d.said[item] != string(b) {
			t.Errorf("%s: said %s, want %s", item, d.said[item], b)
		}
	}
}

// A task that asks for codes gets one with every return, also of what the agent gives back by itself; what it refuses has failed.
func TestCodes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "sent", "later", "busy", "held up", "refused", "gone")
	d.task.RequireCode = true
	d.task.Outcomes = []assign.Outcome{{Code: "sent", Do: "complete"}, {Code: "busy", Do: "return"}, {Code: "no-answer", Do: "return", After: after(time.Hour)}}
	d.refusing = func(_, item string) (int, string) {
		if item == "refused" && d.said["trying"] == "" {
			d.said["trying"] = "once"
			return 422, "invalid"
		}
		return 0, ""
	}
	a := d.agent(func(_ context.Context, w assign.Work) error {
		switch w.Item {
		case "later":
			return ErrLater
		case "busy", "held up":
			return As(assign.Disposition{Code: new(map[string]string{"busy": "busy", "held up": "no-answer"}[w.Item])})
		case "gone":
			return As(assign.Disposition{Code: new("gone"), Note: new("x")})
		}
		return As(assign.Disposition{Code: new("sent"), Result: map[string]any{"n": 1}})
	})
	a.Once, a.ReturnCode = true, "busy"
	if err := a.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for item, want := range map[string]assign.Disposition{
		"sent":    {Code: new("sent"), Result: map[string]any{"n": 1}},
		"later":   {Outcome: "return", Code: new("busy"), After: after(7 * time.Second)},
		"busy":    {Code: new("busy"), After: after(7 * time.Second)},
		"held up": {Code: new("no-answer")},
		"refused": {Outcome: "fail", Error: new("the result is not valid: invalid it is")},
		"gone":    {Code: new("gone"), Note: new("x")},
	} {
		b, _ := json.Marshal(want)
		if d.said[item] != string(b) {
			t.Errorf("%s: said %s, want %s", item, d.said[item], b)
		}
	}
}

// The handler reads how an item was let go of before, and does without if no node says it. Of other items nobody asks.
func TestEarlier(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"": false, "broken": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, "again", "new")
			d.fault = func(w http.ResponseWriter, r *http.Request, before bool) bool {
				if fails := broken && before && r.Method == "GET" && strings.HasPrefix(r.URL.Path, "/api/v1/work/"); fails {
					refuse(w, 404, "not-found")
					return true
				}
				return false
			}
			var mu sync.Mutex
			seen := map[string]int{}
			a := d.agent(func(_ context.Context, w assign.Work) error {
				mu.Lock()
				defer mu.Unlock()
				seen[w.Item] = len(w.Earlier)
				return nil
			})
			a.Once = true
			if err := a.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := map[string]int{"again": 1, "new": 0}
			if broken {
				want["again"] = 0
			}
			if !maps.Equal(seen, want) || d.said["again"] != `{"outcome":"complete"}` {
				t.Errorf("seen %v, want %v; said %v", seen, want, d.said)
			}
			if n := strings.Count(strings.Join(d.calls, "\n")+"\n", "GET /work/"); n != 1 {
				t.Errorf("it asked %d times", n)
			}
		})
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
		now, most := 0, 0
		a := d.agent(func(_ context.Context, w assign.Work) error {
			mu.Lock()
			worked[w.Item]++
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			now--
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
		if most > 4 || d.most > 8 { // as many again are taken early
			t.Errorf("%d in progress and %d in hand at the same time", most, d.most)
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
		s.newTogether()
		defer s.server.transport.CloseIdleConnections()
		s.channel.live = true
		time.AfterFunc(6*time.Second, func() {
			d.do(func() {
				d.items = []string{"a"}
				d.serve(d.requests[0])
			})
		})
		r, _, err := s.getWork(t.Context(), 1)
		if err != nil || len(r.Work) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if left := time.Until(*r.Work[0].LeaseExpiresAt); left < d.lease/3 {
			t.Errorf("it heard of the work when %v of its lease was left", left)
		}
	})
}
