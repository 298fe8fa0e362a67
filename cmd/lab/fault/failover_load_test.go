package fault

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
)

// ledger keeps the nodes' answers, which must be in the tables for ever, whatever dies afterwards.
type ledger struct {
	fault func(format string, args ...any) // reports what must not happen
	why   func()                           // logs what the database says of itself, once

	mu       sync.Mutex
	requests map[int64]assign.Request // as last answered
	work     map[int64]assign.Work
	pushed   map[string]string // items of inboxes, each with its task
	answers  map[int]int       // the number of answers by status
	wrote    []time.Time       // when a commit was answered
	longest  time.Duration     // of a call, beyond the time that it asked to be held
	whose    string
}

func newLedger(t *testing.T) *ledger {
	return &ledger{fault: t.Errorf, requests: map[int64]assign.Request{}, work: map[int64]assign.Work{}, pushed: map[string]string{}, answers: map[int]int{}, why: func() {}}
}

// request records a node's answer about a request. After the request has ended, neither its state nor its numbers may
// change.
func (l *ledger) request(r assign.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, known := l.requests[r.ID]; known && (old.User != r.User || old.State != assign.Pending && (r.State != old.State || r.Assigned != old.Assigned)) {
		l.fault("request %d of %s was told to be %s with %d, and then, of %s, %s with %d",
			r.ID, old.User, old.State, old.Assigned, r.User, r.State, r.Assigned)
	}
	l.requests[r.ID] = r
	for _, w := range r.Work {
		l.holds(w)
	}
}

func (l *ledger) disposed(w assign.Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds(w)
}

func (l *ledger) holds(w assign.Work) {
	old, known := l.work[w.ID]
	if known && (old.User != w.User || old.Item != w.Item) {
		l.fault("work %d was told to be %s's %s, and then %s's %s", w.ID, old.User, old.Item, w.User, w.Item)
	}
	if !known || old.State == "held" {
		l.work[w.ID] = w
	}
}

// missing returns the answers that the tables do not have, by kind, with some examples.
func (l *ledger) missing(s *site) (lost map[string]int, some []string) {
	s.T.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	lost = map[string]int{}
	inTables := map[string]bool{}
	for _, row := range column[string](s, `
select format('request %s of %s: %s %s', id, user_name, state, assigned) from getwork.work_requested
union all select format('request %s of %s', id, user_name) from getwork.work_requested
union all select format('work %s: %s holds %s', id, user_name, item) from getwork.work
union all select format('work %s of %s: %s is %s', id, user_name, item, state) from getwork.work
union all select format('item %s of %s', item, t.name) from getwork.item i join getwork.task_state t using (task_id)`) {
		inTables[row] = true
	}
	must := func(kind, format string, args ...any) {
		if row := fmt.Sprintf(format, args...); !inTables[row] {
			if lost[kind]++; lost[kind] <= 5 {
				some = append(some, row)
			}
		}
	}
	for id, r := range l.requests {
		if r.State == assign.Pending {
			must("requests", "request %d of %s", id, r.User)
		} else {
			must("ended requests", "request %d of %s: %s %d", id, r.User, r.State, r.Assigned)
		}
	}
	for id, w := range l.work {
		if w.State == "held" {
			must("work", "work %d: %s holds %s", id, w.User, w.Item)
		} else {
			must("dispositions", "work %d of %s: %s is %s", id, w.User, w.Item, w.State)
		}
	}
	for item, task := range l.pushed {
		must("pushed items", "item %s of %s", item, task)
	}
	s.T.Logf("answered: %d requests, %d pieces of work, %d pushed items; not in the database: %v", len(l.requests), len(l.work), len(l.pushed), lost)
	return lost, some
}

// outage returns the longest time in which nothing was written.
func (l *ledger) outage() (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := slices.SortedFunc(slices.Values(l.wrote), time.Time.Compare)
	for i := 1; i < len(times); i++ {
		longest = max(longest, times[i].Sub(times[i-1]))
	}
	return longest
}

// statuses formats how many answers had which status.
func (l *ledger) statuses() map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.answers)
}

const (
	hangs        = 25 * time.Second // longer than a node takes to say that the database is away
	outageAtMost = 45 * time.Second // longer than any outage
)

// persist makes a call until the answer is a 2xx, each time at another node. As the contract says, it repeats a call
// after a 503 or 429 and its Retry-After. Any other answer, or none, fails the test.
func (l *ledger) persist(s *site, who cluster.Client, held time.Duration, call func(cluster.Client) (cluster.Answer, error)) bool {
	first := time.Now()
	for at := rand.IntN(len(s.Nodes)); ; at++ {
		who.URL = s.Nodes[at%len(s.Nodes)].URL
		began, still := time.Now(), s.Standstill()
		a, err := call(who)
		slow := time.Since(began)-held-still() > hangs
		l.mu.Lock()
		l.answers[a.Status]++
		if took := time.Since(began) - held; took > l.longest {
			l.longest, l.whose = took, who.User
		}
		l.mu.Unlock()
		switch {
		case s.T.Context().Err() != nil:
			return false
		case err != nil || slow:
			l.fault("%s was not answered within %v: %v", who.User, time.Since(began), err)
			return false
		case a.Status < 300:
			return true
		case a.Status != 503 && a.Status != 429 || a.Header.Get("Retry-After") == "":
			l.fault("%s was answered %d (Retry-After %q): %s", who.User, a.Status, a.Header.Get("Retry-After"), a.Body)
			return false
		case time.Since(first) > outageAtMost:
			l.why()
			l.fault("%s has come again for %v, and was last answered %d: %s", who.User, time.Since(first), a.Status, a.Body)
			return false
		}
		after, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		again := time.NewTimer(time.Duration(after) * time.Second / 4) // sooner than told, to put more load on the nodes
		select {
		case <-again.C:
		case <-s.T.Context().Done():
			return false
		}
	}
}

// commit is persist for a call that is answered as soon as it is committed.
func (l *ledger) commit(s *site, who cluster.Client, call func(cluster.Client) (cluster.Answer, error)) bool {
	done := l.persist(s, who, 0, call)
	if done {
		l.mu.Lock()
		l.wrote = append(l.wrote, time.Now())
		l.mu.Unlock()
	}
	return done
}

// patient bounds a call that is answered in any case; persist notices if a node hangs.
func (s *site) patient(held time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.T.Context(), held+2*hangs)
}

// click asks for work until it gets some, and then completes half of it and returns the rest.
func (l *ledger) click(s *site, who cluster.Client, task string) {
	const held = 5 * time.Second
	var r assign.Request
	if !l.persist(s, who, held, func(c cluster.Client) (a cluster.Answer, err error) {
		ctx, cancel := s.patient(held)
		defer cancel()
		r, a, err = c.GetWork(ctx, task, 2, "Prefer", "wait=5")
		return a, err
	}) {
		return
	}
	id := r.ID
	for l.request(r); r.State == assign.Pending; l.request(r) {
		if !l.persist(s, who, held, func(c cluster.Client) (a cluster.Answer, err error) {
			ctx, cancel := s.patient(held)
			defer cancel()
			r, a, err = c.Request(ctx, id, "Prefer", "wait=5")
			return a, err
		}) {
			return
		}
	}
	for i, w := range r.Work {
		outcome, after := "complete", ""
		if i%2 == 1 {
			outcome, after = "return", "1h"
		}
		l.dispose(s, who, w.ID, outcome, after)
	}
}

func (l *ledger) dispose(s *site, who cluster.Client, work int64, outcome, after string) {
	l.commit(s, who, func(c cluster.Client) (a cluster.Answer, err error) {
		ctx, cancel := s.patient(0)
		defer cancel()
		w, a, err := c.Dispose(ctx, work, outcome, after)
		if err == nil && a.Status < 300 {
			l.disposed(w)
		}
		return a, err
	})
}

// claim pushes an item, claims it, and completes it.
func (l *ledger) claim(s *site, who cluster.Client, task, item string) {
	var w assign.Work
	pushed := l.commit(s, who, func(c cluster.Client) (cluster.Answer, error) {
		ctx, cancel := s.patient(0)
		defer cancel()
		c.Role = "agent"
		return c.Do(ctx, "POST", "/api/v1/tasks/"+task+"/items", []assign.NewItem{{Item: item}})
	})
	if !pushed {
		return
	}
	l.mu.Lock()
	l.pushed[item] = task
	l.mu.Unlock()
	if l.commit(s, who, func(c cluster.Client) (a cluster.Answer, err error) {
		ctx, cancel := s.patient(0)
		defer cancel()
		w, a, err = c.Claim(ctx, task, item)
		return a, err
	}) {
		l.disposed(w)
		l.dispose(s, who, w.ID, "complete", "")
	}
}

// cancel waits for something that never comes, and cancels the request.
func (l *ledger) cancel(s *site, who cluster.Client, task string) {
	var r assign.Request
	var id int64
	for _, step := range []func(context.Context, cluster.Client) (cluster.Answer, error){
		func(ctx context.Context, c cluster.Client) (a cluster.Answer, err error) {
			r, a, err = c.Linger(ctx, task, 1, "10m")
			id = r.ID
			return a, err
		},
		func(ctx context.Context, c cluster.Client) (a cluster.Answer, err error) {
			r, a, err = c.Cancel(ctx, id)
			return a, err
		},
	} {
		if !l.commit(s, who, func(c cluster.Client) (cluster.Answer, error) {
			ctx, cancel := s.patient(0)
			defer cancel()
			return step(ctx, c)
		}) {
			return
		}
		l.request(r)
	}
}

// load has people work until the returned function is called, which waits until each has finished.
func (l *ledger) load(s *site) (finish func()) {
	over := make(chan struct{})
	var people sync.WaitGroup
	person := func(name string, work func(who cluster.Client, n int)) {
		people.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
					work(cluster.Client{User: name}, n)
				}
			}
		})
	}
	for i := range 3 {
		person(fmt.Sprintf("clicker-%d", i), func(who cluster.Client, _ int) { l.click(s, who, "verify") })
		person(fmt.Sprintf("shelf-%d", i), func(who cluster.Client, _ int) { l.click(s, who, "quick") })
	}
	for i := range 2 {
		name := fmt.Sprintf("claimer-%d", i)
		person(name, func(who cluster.Client, n int) { l.claim(s, who, "desk", fmt.Sprintf("%s-%d", name, n)) })
		person(fmt.Sprintf("canceller-%d", i), func(who cluster.Client, _ int) { l.cancel(s, who, "void") })
	}
	finish = sync.OnceFunc(func() {
		close(over)
		people.Wait()
	})
	s.T.Cleanup(finish) // even if the test ends before
	return finish
}
