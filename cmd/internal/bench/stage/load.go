package stage

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// WantedEach is how many items everybody asks for.
const WantedEach = 3

// Load is a closed loop of users: each clicks, waits for their items, and clicks again.
type Load struct {
	Task  string
	among []string // several tasks, for users in turn, instead of Task
	Users int
	next  bool          // they ask over all tasks
	names int           // how many people use the users' connections, a click each; 0: as many as there are users
	nodes int           // how many nodes serve the users, in turn; 0: one
	Pause time.Duration // between an answer and the next click
	Most  int           // the total number of clicks that there are items for; 0: unlimited

	answered *atomic.Int64 // counts the answers, if it is not nil
}

// Answered is an answered click.
type Answered struct {
	At   time.Time
	Took time.Duration
}

// Outcome is the result of a load.
type Outcome struct {
	Clicks []Answered // in the order of their answers
	Waited int        // clicks that were answered "pending" first
	Used   []Usage    // before and after, or once a second of the window
}

// Run lets the users click until the time is over or there were enough clicks, and returns when the last click is
// answered.
func (s *Stage) Run(ctx, over context.Context, l Load) (*Outcome, error) {
	before, err := s.Usage()
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	var total atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i := range l.Users {
		task := l.Task
		if len(l.among) > 0 {
			task = l.among[i%len(l.among)]
		}
		g.Go(func() error {
			u, err := s.user(ctx, i%max(1, l.nodes), User{task: task, count: WantedEach, next: l.next}, "user "+strconv.Itoa(i))
			if err != nil {
				return err
			}
			defer u.Close()
			var clicks []Answered
			for over.Err() == nil && ctx.Err() == nil && (l.Most == 0 || total.Add(1) <= int64(l.Most)) {
				took, err := u.Click()
				if err != nil {
					return err
				}
				clicks = append(clicks, Answered{At: time.Now(), Took: took})
				if l.answered != nil {
					l.answered.Add(1)
				}
				if l.names > 0 {
					if err := u.becomes(ctx, "user "+strconv.Itoa((i+len(clicks)*l.Users)%l.names)); err != nil {
						return err
					}
				}
				Sleep(ctx, l.Pause)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			out.Clicks, out.Waited = append(out.Clicks, clicks...), out.Waited+u.waited
			return context.Cause(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(out.Clicks, func(a, b Answered) int { return a.At.Compare(b.At) })
	after, err := s.Usage()
	out.Used = []Usage{before, after}
	return out, err
}

// WarmUp is how long a load runs before anything is measured, while plans and connections are made.
const WarmUp = time.Second

// Measure runs a load. After the warm-up it reads the usage once a second, for the length of the window and then until
// enough returns true, but for no longer than three windows. If enough is nil the window suffices. However long a busy
// machine takes, the window has some clicks: nothing can be said of none.
func (s *Stage) Measure(ctx context.Context, l Load, window time.Duration, enough func() (bool, error)) (out *Outcome, err error) {
	var used []Usage
	var clicks atomic.Int64
	l.answered = &clicks
	g, ctx := errgroup.WithContext(ctx)
	over, end := context.WithCancel(ctx)
	g.Go(func() (err error) {
		defer end()
		out, err = s.Run(ctx, over, l)
		return err
	})
	g.Go(func() error {
		defer end()
		Sleep(over, WarmUp)
		var before int64 // clicks before the window
		for ; ; Sleep(over, time.Second) {
			some := clicks.Load() > before
			if used == nil {
				before = clicks.Load() + int64(l.Users) // these may have been under way before
			}
			u, err := s.Usage()
			if err != nil {
				return err
			}
			used = append(used, u)
			passed := u.At.Sub(used[0].At)
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
	if err != nil {
		return nil, err
	}
	if out.Used = used; len(out.Between(used[0].At, used[len(used)-1].At)) == 0 {
		return nil, errors.New("the items were used up before anything was measured: this machine is faster than expected")
	}
	return out, nil
}

// Between returns the clicks that were answered between two times.
func (o *Outcome) Between(from, to time.Time) []Answered {
	search := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(o.Clicks, t, func(a Answered, t time.Time) int { return a.At.Compare(t) })
		return i
	}
	return o.Clicks[search(from):search(to)]
}

// Cost is the rate of a window's clicks, and the CPU of one.
type Cost struct{ Rate, Database, Nodes float64 } // clicks per second; µs of CPU per click

// Cost returns what the clicks of the window cost.
func (o *Outcome) Cost() Cost {
	from, to := o.Used[0], o.Used[len(o.Used)-1]
	return CostOf(from, to, len(o.Between(from.At, to.At)))
}

// CostOf returns what each of so many things cost between two readings.
func CostOf(from, to Usage, things int) Cost {
	n := float64(things)
	return Cost{Rate: n / to.At.Sub(from.At).Seconds(), Database: micros(to.Database-from.Database) / n, Nodes: micros(to.Nodes-from.Nodes) / n}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Millis returns a time in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Sleep waits for a time, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
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
