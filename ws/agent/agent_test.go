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
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

func nothing(context.Context, assign.Work) error { return nil }

// What a handler returns becomes what is said of the work.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "fine", "later", "wrapped", "after", "long after", "fails", "garbage", "panics")
	a := d.agent(func(_ context.Context, w assign.Work) error {
		switch w.Item {
		case "later":
			return ErrLater
		case "wrapped":
			return fmt.Errorf("the site is down: %w", ErrLater)
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

// What can't work ends Run, and says why.
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

// Every third call is answered 503, every third is carried out and its answer lost: still each item is worked on once,
// nothing is held by nobody's knowledge, and never is more in hand than there may be.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
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
}

// A server that is away when the agent starts is waited for.
func TestServerAwayAtTheStart(t *testing.T) {
	t.Parallel()
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
}

// Work that is not the agent's any more is not begun; nor is anything said of it.
func TestNotBegun(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "gone", "ours")
	d.fault = func(w http.ResponseWriter, r *http.Request, before bool) bool {
		if before && r.URL.Path == "/api/v1/work/1/extend" {
			refuse(w, 409, "lease-lost")
			return true
		}
		return false
	}
	var worked []string
	a := d.agent(func(_ context.Context, w assign.Work) error {
		worked = append(worked, w.Item)
		return nil
	})
	a.Once = true
	if err := a.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(worked, []string{"ours"}) || d.said["gone"] != "" {
		t.Errorf("worked on %q, said %q", worked, d.said)
	}
}

// The lease is renewed while the handler runs; when it is lost, or no node answers until its end, the handler's context
// is cancelled, and nothing is said.
func TestLease(t *testing.T) {
	for name, lose := range map[string]func(w http.ResponseWriter){
		"kept":   nil,
		"lost":   func(w http.ResponseWriter) { refuse(w, 409, "lease-lost") },
		"closed": func(w http.ResponseWriter) { refuse(w, 404, "not-found") },
		"away":   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"busy":   func(w http.ResponseWriter) { refuse(w, 503, "unavailable") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, "a")
			d.lease = 9 * time.Second // a machine that stands still for a while does not end it
			works := 24 * time.Second // several times that
			losing := false
			d.fault = func(w http.ResponseWriter, r *http.Request, before bool) bool {
				if !before || !losing || !strings.HasPrefix(r.URL.Path, "/api/v1/work/") {
					return false
				}
				lose(w)
				return true
			}
			began, worked := make(chan struct{}), make(chan struct{})
			var cause error
			var took, stood time.Duration
			a := d.agent(func(ctx context.Context, _ assign.Work) error {
				start, still := time.Now(), standstill()
				close(began)
				select {
				case <-ctx.Done():
				case <-time.After(works):
				}
				d.do(func() { cause, took, stood = context.Cause(ctx), time.Since(start), still() })
				close(worked)
				return nil
			})
			stop := d.start(a)
			<-began
			d.do(func() { losing = lose != nil })
			<-worked
			d.await("it is over", func() bool { return d.said["a"] != "" || cause != nil })
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if lose == nil {
				if n := d.count("POST /work/1/extend"); n < 5 || n > 14 || cause != nil || d.said["a"] == "" {
					t.Errorf("extended %d times, %v, said %q", n, cause, d.said["a"])
				}
				return
			}
			if !errors.Is(cause, ErrLeaseLost) || took > d.lease+time.Second+stood || d.said["a"] != "" {
				t.Errorf("cancelled after %v, of which the machine stood still for %v: %v; said %q", took, stood, cause, d.said["a"])
			}
		})
	}
}

// Work without a lease is checked once, before it starts.
func TestNoLease(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "a")
	d.lease = 0
	a := d.agent(nothing)
	a.Once = true
	if err := a.Run(t.Context()); err != nil || d.said["a"] == "" || d.count("POST /work/1/extend") != 1 {
		t.Errorf("%v, said %q, calls %q", err, d.said["a"], d.calls)
	}
}

// Without a live channel a request that waits is asked for as often as the node says.
func TestPolling(t *testing.T) {
	t.Parallel()
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
}

// Work whose lease is shorter than what the node says is asked for sooner: nobody renews it before it is known.
func TestPollingShortLease(t *testing.T) {
	t.Parallel()
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
}

// Never is more in hand than there may be, and never more asked for than the task allows, also when that changes.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "a", "b", "c", "d", "e", "f")
	d.task.MaxRequest = 2
	release := make(chan struct{})
	a := d.agent(func(context.Context, assign.Work) error { <-release; return nil })
	a.Concurrency = 5
	stop := d.start(a)
	d.await("five are in hand", func() bool { return d.most == 5 })
	d.do(func() { d.task.MaxRequest = 1 })
	for range 6 {
		release <- struct{}{}
	}
	d.await("all are done", func() bool { return len(d.said) == 6 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if d.most != 5 {
		t.Errorf("%d in hand at the same time", d.most)
	}
	var wanted []int
	for _, q := range d.requests {
		wanted = append(wanted, q.Wanted)
	}
	if !slices.Equal(wanted[:4], []int{2, 2, 1, 1}) {
		t.Errorf("asked for %v", wanted)
	}
}

// What a former process of the same instance held is worked on, as far as there is room; the rest goes back, and what it
// waited for is cancelled.
func TestResume(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, item := range []string{"a", "b", "c"} {
		d.hold(item, 0)
	}
	d.requests = []*assign.Request{{ID: 1, Task: "crawl", Wanted: 5, State: assign.Pending}}
	a := d.agent(nothing)
	a.Instance, a.Once, a.Concurrency = "fixed", true, 2
	if err := a.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := map[string]int{}
	for _, what := range d.said {
		said[what]++
	}
	if said[`{"outcome":"complete"}`] != 2 || said[`{"outcome":"return","after":"0s"}`] != 1 || d.requests[0].State != assign.Cancelled {
		t.Errorf("said %v, request is %s", said, d.requests[0].State)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	t.Run("waiting", func(t *testing.T) {
		d := newDesk(t)
		stop := d.start(d.agent(nothing))
		d.await("it waits", func() bool { return len(d.requests) == 1 })
		if err := stop(); err != nil || d.requests[0].State != assign.Cancelled {
			t.Errorf("%v, request is %s", err, d.requests[0].State)
		}
	})
	t.Run("answered meanwhile", func(t *testing.T) {
		d := newDesk(t)
		d.fault = func(_ http.ResponseWriter, r *http.Request, before bool) bool {
			if before && r.Method == "DELETE" {
				d.items = []string{"a"}
				d.serve(d.requests[0])
			}
			return false
		}
		stop := d.start(d.agent(nothing))
		d.await("it waits", func() bool { return len(d.requests) == 1 })
		if err := stop(); err != nil || d.said["a"] != `{"outcome":"return","after":"0s"}` {
			t.Errorf("%v, said %q", err, d.said["a"])
		}
	})
	t.Run("answer lost", func(t *testing.T) {
		d := newDesk(t, "a")
		asked, lost := make(chan struct{}), false
		d.fault = func(_ http.ResponseWriter, r *http.Request, before bool) bool {
			if lost || before || !strings.HasSuffix(r.URL.Path, "/requests") {
				return false
			}
			lost = true
			close(asked)
			panic(http.ErrAbortHandler)
		}
		stop := d.start(d.agent(nothing))
		<-asked
		if err := stop(); err != nil || d.said["a"] == "" {
			t.Errorf("%v, said %q", err, d.said["a"])
		}
	})
	for name, drain := range map[string]time.Duration{"finishes": time.Minute, "is cut": 100 * time.Millisecond, "at once": -1} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, "a")
			working, release := make(chan struct{}), make(chan struct{})
			var cause error
			a := d.agent(func(ctx context.Context, _ assign.Work) error {
				close(working)
				select {
				case <-ctx.Done():
				case <-release:
				}
				cause = context.Cause(ctx)
				return cause
			})
			a.Drain = drain
			stop := d.start(a)
			<-working
			if drain == time.Minute {
				d.await("it waits for more", func() bool { return d.requests[0].State == assign.Assigned })
				time.AfterFunc(50*time.Millisecond, func() { close(release) })
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			want := `{"outcome":"return","after":"0s"}`
			if drain == time.Minute {
				want = `{"outcome":"complete"}`
			}
			if d.said["a"] != want || drain != time.Minute && !errors.Is(cause, ErrDraining) {
				t.Errorf("said %q, %v", d.said["a"], cause)
			}
		})
	}
}
