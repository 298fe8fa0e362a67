package bench

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// wantedEach is how many items everybody asks for.
const wantedEach = 3

// load is a closed loop of users: each clicks, waits for their items, and clicks again.
type load struct {
	task  string
	among []string // several tasks, for users in turn, instead of task
	users int
	names int           // how many people use the users' connections, a click each; 0: as many as there are users
	nodes int           // how many nodes serve the users, in turn; 0: one
	pause time.Duration // between an answer and the next click
	most  int           // the total number of clicks that there are items for; 0: unlimited

	answered *atomic.Int64 // counts the answers, if it is not nil
}

// answered is an answered click.
type answered struct {
	at   time.Time
	took time.Duration
}

// outcome is the result of a load.
type outcome struct {
	clicks []answered // in the order of their answers
	waited int        // clicks that were answered "pending" first
	used   []usage    // once a second of the window
}

// run lets the users click until the time is over or there were enough clicks, and returns when the last click is
// answered.
func (s *stage) run(ctx, over context.Context, l load) (*outcome, error) {
	out := &outcome{}
	var total atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i := range l.users {
		task := l.task
		if len(l.among) > 0 {
			task = l.among[i%len(l.among)]
		}
		g.Go(func() error {
			u, err := s.user(ctx, i%max(1, l.nodes), task, "user "+strconv.Itoa(i), wantedEach)
			if err != nil {
				return err
			}
			defer u.close()
			var clicks []answered
			for over.Err() == nil && ctx.Err() == nil && (l.most == 0 || total.Add(1) <= int64(l.most)) {
				took, err := u.click()
				if err != nil {
					return err
				}
				clicks = append(clicks, answered{at: time.Now(), took: took})
				if l.answered != nil {
					l.answered.Add(1)
				}
				if l.names > 0 {
					if err := u.becomes(ctx, "user "+strconv.Itoa((i+len(clicks)*l.users)%l.names)); err != nil {
						return err
					}
				}
				sleep(ctx, l.pause)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			out.clicks, out.waited = append(out.clicks, clicks...), out.waited+u.waited
			return context.Cause(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(out.clicks, func(a, b answered) int { return a.at.Compare(b.at) })
	return out, nil
}

// warmUp is how long a load runs before anything is measured, while plans and connections are made.
const warmUp = time.Second

// measure runs a load. After the warm-up it reads the usage once a second, for the length of the window and then until
// enough returns true, but for no longer than three windows. If enough is nil the window suffices. However long a busy
// machine takes, the window has some clicks: nothing can be said of none.
func (s *stage) measure(ctx context.Context, l load, window time.Duration, enough func() (bool, error)) (out *outcome, err error) {
	var used []usage
	var clicks atomic.Int64
	l.answered = &clicks
	g, ctx := errgroup.WithContext(ctx)
	over, end := context.WithCancel(ctx)
	g.Go(func() (err error) {
		defer end()
		out, err = s.run(ctx, over, l)
		return err
	})
	g.Go(func() error {
		defer end()
		sleep(over, warmUp)
		var before int64 // clicks before the window
		for ; ; sleep(over, time.Second) {
			some := clicks.Load() > before
			if used == nil {
				before = clicks.Load() + int64(l.users) // these may have been under way before
			}
			u, err := s.usage()
			if err != nil {
				return err
			}
			used = append(used, u)
			passed := u.at.Sub(used[0].at)
			switch {
			case over.Err() != nil:
				return nil
			case !some:
				continue
			case passed >= window && enough == nil || passed >= 3*window:
				return nil
			case passed >= window:
				if yes, err := enough(); yes || err != nil {
					return err
				}
			}
		}
	})
	err = g.Wait()
	if err == nil && len(used) < 2 {
		err = errors.New("the items were used up before anything was measured: this machine is faster than expected")
	}
	if err != nil {
		return nil, err
	}
	out.used = used
	return out, nil
}

// between returns the clicks that were answered between two times.
func (o *outcome) between(from, to time.Time) []answered {
	search := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(o.clicks, t, func(a answered, t time.Time) int { return a.at.Compare(t) })
		return i
	}
	return o.clicks[search(from):search(to)]
}

// cost is the rate of a window's clicks, and the CPU of one.
type cost struct{ rate, database, nodes float64 } // clicks per second; µs of CPU per click

func (o *outcome) cost() cost {
	from, to := o.used[0], o.used[len(o.used)-1]
	n := float64(len(o.between(from.at, to.at)))
	return cost{rate: n / to.at.Sub(from.at).Seconds(), database: micros(to.database-from.database) / n, nodes: micros(to.nodes-from.nodes) / n}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// sleep waits for a time, or until ctx ends.
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
