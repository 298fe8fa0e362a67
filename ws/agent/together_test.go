package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"getwork/assign"
)

func numbered(n int) (items []string) {
	for i := range n {
		items = append(items, fmt.Sprint(i))
	}
	return items
}

// Quick work takes few calls: several places are asked for together, results are sent together, and what was just handed out is not
// renewed. Each item is handled once.
func TestQuickWorkTakesFewCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const items, at = 1000, 50
		d := newDesk(t, numbered(items)...)
		d.task.MaxRequest = 200
		var handled atomic.Int64
		a := d.agent(func(context.Context, assign.Work) error {
			handled.Add(1)
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		a.Once, a.Concurrency, a.Log = true, at, nil
		if err := a.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if handled.Load() != items || len(d.said) != items {
			t.Errorf("%d handled, %d done", handled.Load(), len(d.said))
		}
		for call, most := range map[string]int{"POST /work/extend": 0, "POST /tasks/crawl/requests": 2*items/at + 2, "POST /work/dispositions": 3 * items / at} {
			if n := d.count(call); n > most {
				t.Errorf("%d calls %s, want at most %d", n, call, most)
			}
		}
		if d.most > 2*at {
			t.Errorf("%d in hand at the same time", d.most)
		}
	})
}

// Results are not collected by a timer: the only one is sent at once, and one whose handler blocks delays nobody else's.
func TestResultsAreSentAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, numbered(10)...)
		release := make(chan struct{})
		began := time.Now()
		a := d.agent(func(_ context.Context, w assign.Work) error {
			if w.Item == "0" {
				<-release
			}
			return nil
		})
		a.Concurrency = 2
		stop := d.start(a)
		d.await("the others are done", func() bool { return len(d.said) == 9 })
		if took := time.Since(began); took > quickWithin/2 {
			t.Errorf("it took %v", took)
		}
		close(release)
		d.await("all are done", func() bool { return len(d.said) == 10 })
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Items that were taken early, and not begun, go back: when the others have become slow, and at the agent's end. Those go on.
func TestWhatWasTakenEarlyGoesBack(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"when work is slow": false, "at the end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const at = 4
				d := newDesk(t, numbered(40)...)
				d.task.MaxRequest = at
				slow, release := atomic.Bool{}, make(chan struct{})
				var handled atomic.Int64
				a := d.agent(func(context.Context, assign.Work) error {
					if handled.Add(1) > 20 || slow.Load() {
						slow.Store(true)
						<-release
					}
					return nil
				})
				a.Concurrency = at
				stop := d.start(a)
				held := func() (n int) {
					for _, w := range d.work {
						if w.State == "held" {
							n++
						}
					}
					return n
				}
				d.await("items are taken early", func() bool { return slow.Load() && held() > at })
				back := func() (n int) {
					for _, said := range d.said {
						if said == `{"outcome":"return","after":"0s"}` {
							n++
						}
					}
					return n
				}
				if ends {
					time.AfterFunc(time.Second, func() { close(release) })
					if err := stop(); err != nil {
						t.Error(err)
					}
				} else {
					d.await("they are back", func() bool { return held() == at })
					close(release)
				}
				d.do(func() {
					if back() == 0 {
						t.Errorf("said %v", d.said)
					}
				})
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := held(); n > 0 {
					t.Errorf("%d are held at the end", n)
				}
			})
		})
	}
}

// Work whose request has waited is renewed before it begins, all of it in one call or two: nobody knows how old its lease is.
func TestOldLeasesAreRenewedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.again, d.task.MaxRequest = 20, 20
		d.travel = time.Millisecond // while one call is under way, all others ask
		a := d.agent(nothing)
		a.Concurrency = 20
		stop := d.start(a)
		d.await("it waits", func() bool { return len(d.requests) == 1 })
		time.Sleep(d.lease/3 + time.Second)
		d.do(func() {
			d.items = numbered(20)
			d.serve(d.requests[0])
		})
		d.await("all are done", func() bool { return len(d.said) == 20 })
		if n := d.count("POST /work/extend"); n < 1 || n > 2 {
			t.Errorf("%d renewals", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// One of many that is refused, or too long, spoils nothing for the others; and long texts are sent in parts.
func TestPartsOfACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const items = 600
		d := newDesk(t, numbered(items)...)
		d.task.MaxRequest = items
		largest := 0
		d.fault = func(_ http.ResponseWriter, r *http.Request, before bool) bool {
			if before && strings.HasSuffix(r.URL.Path, "/dispositions") {
				largest = max(largest, len(d.bodies[len(d.bodies)-1]))
			}
			return false
		}
		d.refusing = func(call, item string) (int, string) {
			if call == "disposition" && item == "7" {
				return 409, "already-closed"
			}
			return 0, ""
		}
		a := d.agent(func(context.Context, assign.Work) error { return errors.New(strings.Repeat("<", 2*maxText)) })
		a.Once, a.Concurrency, a.Log = true, items, nil
		if err := a.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(d.said) != items-1 || largest > 1<<20 {
			t.Errorf("%d are done, the largest call has %d bytes", len(d.said), largest)
		}
	})
}
