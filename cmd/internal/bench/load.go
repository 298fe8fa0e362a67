package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// load is a closed loop of users: each has a name and a connection of his own, clicks, waits for his items, and clicks
// again.
type load struct {
	url   string
	task  string
	users int
	count int           // items a click
	pause time.Duration // between an answer and the next click
	most  int64         // clicks altogether, so that there are items for all; 0: any number
}

// answered is a click that was answered.
type answered struct {
	at   time.Duration // when, since the load began
	took time.Duration
}

// outcome is what came of a load.
type outcome struct {
	began  time.Time
	clicks []answered // by the time of their answers
	items  []int64    // all that were handed out
	waited int        // clicks that were answered "pending" first
}

// run has the users click until it is over, and returns when the last click is answered.
func (l load) run(ctx, over context.Context) (*outcome, error) {
	out := &outcome{began: time.Now()}
	var mu sync.Mutex
	var total atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i := range l.users {
		g.Go(func() error {
			u, err := openUser(ctx, l.url, l.task, "user "+strconv.Itoa(i), l.count)
			if err != nil {
				return err
			}
			defer u.close()
			var clicks []answered
			for over.Err() == nil && ctx.Err() == nil && (l.most == 0 || total.Add(1) <= l.most) {
				took, err := u.click()
				if err != nil {
					return err
				}
				clicks = append(clicks, answered{at: time.Since(out.began), took: took})
				sleep(ctx, l.pause)
			}
			mu.Lock()
			defer mu.Unlock()
			out.clicks = append(out.clicks, clicks...)
			out.items = append(out.items, u.items...)
			out.waited += u.waited
			return context.Cause(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(out.clicks, func(a, b answered) int { return int(a.at - b.at) })
	return out, nil
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// between are the clicks that were answered from one time to the other.
func (o *outcome) between(from, to time.Time) []answered {
	search := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(o.clicks, t.Sub(o.began), func(a answered, at time.Duration) int { return int(a.at - at) })
		return i
	}
	return o.clicks[search(from):search(to)]
}

// user is one who clicks.
type user struct {
	name   string
	count  int
	wire   *wire
	call   []byte
	items  []int64
	waited int
	stop   func() bool
}

// answerWithin is how long an answer may take; a held one is held for two minutes at most.
const answerWithin = 150 * time.Second

func openUser(ctx context.Context, url, task, name string, count int) (*user, error) {
	w, err := dialWire(ctx, url)
	if err != nil {
		return nil, err
	}
	u := &user{name: name, count: count, wire: w,
		call: request("POST", "/api/v1/tasks/"+task+"/requests", name, fmt.Sprintf(`{"count":%d}`, count))}
	u.stop = context.AfterFunc(ctx, w.close)
	return u, nil
}

func (u *user) close() {
	u.stop()
	u.wire.close()
}

// click gets work, and returns how long that took. Every click must be answered with as many items as it asked for.
func (u *user) click() (time.Duration, error) {
	began := time.Now()
	if err := u.wire.conn.SetDeadline(began.Add(answerWithin)); err != nil {
		return 0, err
	}
	status, body, err := u.wire.do(u.call)
	for status == 202 && err == nil { // it waits for a run: hold on until that is over
		u.waited++
		var id []byte
		if id, err = idOf(body); err == nil {
			status, body, err = u.wire.do(request("GET", "/api/v1/requests/"+string(id), u.name, "", "Prefer: wait=120"))
		}
		if err == nil && status == 200 {
			status = 201
			if bytes.Contains(body, []byte(`"state":"pending"`)) {
				err = errors.New("it was still pending after two minutes")
			}
		}
	}
	took := time.Since(began)
	if err == nil {
		u.items, err = takeItems(u.items, status, body, u.count)
	}
	if err != nil {
		return 0, fmt.Errorf("a click of %s: %w", u.name, err)
	}
	return took, nil
}

func idOf(body []byte) ([]byte, error) {
	rest, found := bytes.CutPrefix(body, []byte(`{"id":"`))
	id, _, whole := bytes.Cut(rest, []byte(`"`))
	if !found || !whole {
		return nil, fmt.Errorf("the answer does not begin with an id: %.200s", body)
	}
	return id, nil
}

// takeItems adds the items of an answer, which are numbers, to those of before.
func takeItems(items []int64, status int, body []byte, want int) ([]int64, error) {
	if status != 201 || !bytes.Contains(body, []byte(`"state":"assigned"`)) {
		return items, fmt.Errorf("the answer is not the items that were asked for, but %d: %.400s", status, body)
	}
	from := len(items)
	for rest := body; ; {
		_, after, found := bytes.Cut(rest, []byte(`"item":"`))
		if !found {
			break
		}
		key, after, _ := bytes.Cut(after, []byte(`"`))
		n, err := strconv.ParseInt(string(key), 10, 64)
		if err != nil {
			return items, fmt.Errorf("the item %q was never there", key)
		}
		if slices.Contains(items[from:], n) {
			return items, fmt.Errorf("one answer has the item %d twice", n)
		}
		items, rest = append(items, n), after
	}
	if got := len(items) - from; got != want {
		return items, fmt.Errorf("the answer has %d items, not %d: %.400s", got, want, body)
	}
	return items, nil
}
