package agent

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
)

// Never are more items in progress than allowed, and never are more requested than the task allows, also if that changes.
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

// An agent works on the items of a former process of its instance, as far as there is room. The rest goes back, and the
// waiting request is cancelled.
func TestResume(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, item := range []string{"a", "b", "c"} {
		d.hold(item, 0)
	}
	d.requests = []*assign.Request{{ID: 1, Task: "crawl", Wanted: 5, State: assign.Pending}}
	release := make(chan struct{}) // none may end before the third has come, which would have room then
	a := d.agent(func(context.Context, assign.Work) error { <-release; return nil })
	a.Instance, a.Once, a.Concurrency = "fixed", true, 2
	ended := make(chan error, 1)
	go func() { ended <- a.Run(t.Context()) }()
	d.await("the third has gone back", func() bool { return d.said["c"] != "" })
	close(release)
	if err := <-ended; err != nil {
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
	t.Run("before the first renewal is answered", func(t *testing.T) {
		d := newDesk(t)
		d.hold("a", 0)
		renewing, renewed := make(chan struct{}), false
		d.fault = func(_ http.ResponseWriter, r *http.Request, before bool) bool {
			if renewed || !before || !strings.HasSuffix(r.URL.Path, "/extend") {
				return false
			}
			renewed = true
			close(renewing)
			<-r.Context().Done() // the agent was cut off
			return true
		}
		a := d.agent(func(context.Context, assign.Work) error {
			t.Error("the handler was called")
			return nil
		})
		a.Drain, a.Instance = -1, "fixed"
		stop := d.start(a)
		<-renewing
		if err := stop(); err != nil || d.said["a"] != `{"outcome":"return","after":"0s"}` {
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
