package agent

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"getwork/assign"
	"getwork/schema/schematest/memnet"
)

// An agent does not begin work that is no longer its own, and reports nothing about it.
func TestNotBegun(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.hold("gone", 0) // by a former process: nobody knows how old its lease is
	d.hold("ours", 0)
	d.refusing = func(call, item string) (int, string) {
		if call == "extend" && item == "gone" {
			return 409, "lease-lost"
		}
		return 0, ""
	}
	var worked []string
	a := d.agent(func(_ context.Context, w assign.Work) error {
		worked = append(worked, w.Item)
		return nil
	})
	a.Once, a.Instance, a.Concurrency = true, "fixed", 2
	if err := a.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(worked, []string{"ours"}) || d.said["gone"] != "" {
		t.Errorf("worked on %q, said %q", worked, d.said)
	}
}

// The lease is renewed while the handler runs. If it is lost, or no node answers until its end, the handler's context is
// cancelled, and nothing is reported.
func TestLease(t *testing.T) {
	for name, lose := range map[string]func(w http.ResponseWriter) (status int, kind string){
		"kept":   nil,
		"lost":   func(http.ResponseWriter) (int, string) { return 409, "lease-lost" },
		"closed": func(http.ResponseWriter) (int, string) { return 404, "not-found" },
		"away":   func(http.ResponseWriter) (int, string) { panic(http.ErrAbortHandler) },
		"busy":   func(w http.ResponseWriter) (int, string) { refuse(w, 503, "unavailable"); return 0, "" },
		"older":  func(w http.ResponseWriter) (int, string) { refuse(w, 405, "method-not-allowed"); return 0, "" }, // the node has no such call
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const lease, works = 9 * time.Second, 24 * time.Second
				d := newDesk(t, "a")
				d.lease = lease
				losing := false
				d.fault = func(w http.ResponseWriter, r *http.Request, before bool) bool {
					if !before || !losing || !strings.HasPrefix(r.URL.Path, "/api/v1/work/") {
						return false
					}
					status, _ := lose(w)
					return status == 0
				}
				d.refusing = func(string, string) (status int, kind string) {
					if losing {
						status, kind = lose(nil)
					}
					return status, kind
				}
				began, worked := make(chan struct{}), make(chan struct{})
				var cause error
				var took time.Duration
				stop := d.start(d.agent(func(ctx context.Context, _ assign.Work) error {
					start := time.Now()
					close(began)
					select {
					case <-ctx.Done():
					case <-time.After(works):
					}
					d.do(func() { cause, took = context.Cause(ctx), time.Since(start) })
					close(worked)
					return nil
				}))
				<-began
				d.do(func() { losing = lose != nil })
				<-worked
				d.await("it is over", func() bool { return d.said["a"] != "" || cause != nil })
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if lose == nil {
					if n := d.count("POST /work/extend"); n < 5 || n > 14 || cause != nil || d.said["a"] == "" {
						t.Errorf("extended %d times, %v, said %q", n, cause, d.said["a"])
					}
					return
				}
				if !errors.Is(cause, ErrLeaseLost) || took > lease || d.said["a"] != "" {
					t.Errorf("cancelled after %v: %v; said %q", took, cause, d.said["a"])
				}
			})
		})
	}
}

// Work of a former process has the lease that this one requested, also if the task or the agent has a longer one by now.
func TestResumedLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.lease = 9 * time.Second
		work := d.hold("a", 0)
		work.AssignedAt = work.AssignedAt.Add(-time.Hour)
		a := d.agent(func(context.Context, assign.Work) error {
			time.Sleep(24 * time.Second) // of synctest's clock
			return nil
		})
		a.Instance, a.Once, a.Lease = "fixed", true, 5*time.Minute
		if err := a.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := d.count("POST /work/extend"); n < 5 || d.said["a"] == "" {
			t.Errorf("extended %d times, said %q", n, d.said["a"])
		}
	})
}

// Work without a lease is checked once, before it starts, if it was held before the agent started.
func TestNoLease(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.lease = 0
	d.hold("a", 0)
	a := d.agent(nothing)
	a.Once, a.Instance = true, "fixed"
	if err := a.Run(t.Context()); err != nil || d.said["a"] == "" || d.count("POST /work/extend") != 1 {
		t.Errorf("%v, said %q, calls %q", err, d.said["a"], d.calls)
	}
}

// A proxy without a backend may answer 404 or 409 of its own. That says nothing about the work: it goes on, its outcome is
// reported when a node answers again, and the agent takes more.
func TestForeignRefusal(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter){
		"not found": http404,
		"conflict":  func(w http.ResponseWriter) { http.Error(w, "no backend", http.StatusConflict) },
		"gateway": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"type":"about:blank","status":404}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, "a")
				away := false
				d.fault = func(w http.ResponseWriter, _ *http.Request, before bool) bool {
					if before && away {
						answer(w)
					}
					return before && away
				}
				var cause error
				stop := d.start(d.agent(func(ctx context.Context, w assign.Work) error {
					if w.Item == "b" {
						return nil
					}
					d.do(func() { away = true })
					time.AfterFunc(25*time.Second, func() { d.do(func() { away = false; d.items = append(d.items, "b") }) })
					select {
					case <-ctx.Done():
						cause = context.Cause(ctx)
					case <-time.After(15 * time.Second):
					}
					return cause
				}))
				d.await("the next item is done", func() bool { return d.said["b"] != "" })
				if err := stop(); err != nil || cause != nil || d.said["a"] != `{"outcome":"complete"}` {
					t.Errorf("%v, cancelled by %v, said %q", err, cause, d.said)
				}
			})
		})
	}
}

func http404(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) }

// An agent whose URL is wrong says so instead of waiting.
func TestForeignAtTheStart(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fault = func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
		http404(w)
		return true
	}
	if err := d.agent(nothing).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is the URL right?") {
		t.Errorf("it ended with %v", err)
	}
}

// A Retry-After that is longer than the lease costs neither the lease nor the outcome.
func TestLongRetryAfter(t *testing.T) {
	t.Parallel()
	for _, on := range []string{"/api/v1/work/extend", "/api/v1/work/dispositions", "/api/v1/tasks/crawl"} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, "a")
				d.lease = 10 * time.Second
				busy := false
				d.fault = func(w http.ResponseWriter, r *http.Request, before bool) bool {
					if !before || !busy || r.URL.Path != on {
						return false
					}
					busy = false
					w.Header().Set("Retry-After", "3600")
					w.WriteHeader(http.StatusServiceUnavailable)
					return true
				}
				var cause error
				worked := make(chan struct{})
				d.start(d.agent(func(ctx context.Context, _ assign.Work) error {
					defer close(worked)
					d.do(func() { busy = true })
					select {
					case <-ctx.Done():
						d.do(func() { cause = context.Cause(ctx) })
					case <-time.After(61 * time.Second): // so that the settings are read again
					}
					return ErrLater
				}))
				<-worked
				d.await("it is over", func() bool { return d.said["a"] != "" || cause != nil })
				d.do(func() {
					if cause != nil || busy {
						t.Errorf("cancelled by %v; still busy: %t", cause, busy)
					}
				})
			})
		})
	}
}

// Over HTTP/2 all calls share a connection. If it goes silent, the lease is kept over another one.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{9 * time.Second, 18 * time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, "a")
				d.lease = lease
				line := memnet.First{Network: d.conns}
				var cause error
				a := d.agent(func(ctx context.Context, _ assign.Work) error {
					line.Silent.Store(true)
					select {
					case <-ctx.Done():
						d.do(func() { cause = context.Cause(ctx) })
					case <-time.After(lease * 3 / 2):
					}
					return nil
				})
				a.Transport.Protocols = new(http.Protocols)
				a.Transport.Protocols.SetUnencryptedHTTP2(true)
				a.Transport.DialContext = line.Dial
				stop := d.start(a)
				d.await("it is over", func() bool { return d.said["a"] != "" || cause != nil })
				if err := stop(); err != nil || cause != nil {
					t.Errorf("%v, cancelled by %v", err, cause)
				}
			})
		})
	}
}
