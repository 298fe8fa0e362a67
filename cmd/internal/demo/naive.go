package demo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cli"
)

// compareWithin bounds each half of a comparison: the naive half gets slower with every user.
const compareWithin = 15 * time.Minute

// contest is a number of users who click at about the same time. In one half each runs their own query without a lock,
// as a program does that was written for one user; in the other half they click on the nodes.
type contest struct {
	*demo
	users     int
	within    time.Duration // the clicks are spread evenly over this time
	count     int           // how many items each user wants
	bound     time.Duration // after this time unserved users are given up
	budget    time.Duration // naive users are so few that their queries take about this long; 0: all users click
	spectator spectator
}

// spectator receives what happens in a contest. Users click and are answered in goroutines of their own.
type spectator interface {
	step(name string)              // the half's next step of preparation
	begins(what string, users int) // the users click now
	clicked(user int)
	answered(user int, o outcome)
	ran(runs []assign.Run) // the task's runs since the users clicked, newest first
}

// half has the measurements of one way to hand out work.
type half struct {
	queries  int
	alone    time.Duration // how long the query takes when nobody else runs it; 0: not measured
	outcomes []outcome
	cpu      time.Duration // CPU time of PostgreSQL
	measured bool          // cpu is known
}

// outcome is the result of one user's click.
type outcome struct {
	items []string
	wait  time.Duration // from the click to the answer
	err   error         // why there was no answer
}

// compare lets the same users click in both halves, and prints the halves side by side.
func (d *demo) compare(ctx context.Context) error {
	c := &contest{demo: d, users: d.Users, within: d.Within, count: d.Count, bound: compareWithin, spectator: &onTerminal{progress: d.progress}}
	naive, err := c.naiveHalf(ctx)
	if err != nil {
		return fmt.Errorf("naive run: %w", err)
	}
	defer c.giveBack()
	shared, err := c.realHalf(ctx)
	if err != nil {
		return fmt.Errorf("run on the nodes: %w", err)
	}
	d.progress.end()
	return d.printComparison(naive, shared)
}

// onTerminal prints in one line how many users are served.
type onTerminal struct {
	*progress
	mu            sync.Mutex
	what          string
	served, users int
}

func (o *onTerminal) begins(what string, users int) {
	o.what, o.served, o.users = what, 0, users
	o.part(what, 0, int64(users))
}

func (o *onTerminal) clicked(int) {}

func (o *onTerminal) ran([]assign.Run) {}

func (o *onTerminal) answered(_ int, got outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if got.err == nil {
		o.served++
		o.part(o.what, int64(o.served), int64(o.users))
	}
}

// clicks has every user click when their time comes, and waits for all of them. It returns an error if nobody was
// served.
func (c *contest) clicks(ctx context.Context, what string, click func(ctx context.Context, user int) ([]string, error)) ([]outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, c.bound)
	defer cancel()
	outcomes := make([]outcome, c.users)
	c.spectator.begins(what, c.users)
	var users sync.WaitGroup
	began := time.Now()
	for i := range outcomes {
		users.Go(func() {
			at := began.Add(c.within * time.Duration(i) / time.Duration(c.users))
			select {
			case <-time.After(time.Until(at)):
			case <-ctx.Done():
				outcomes[i].err = ctx.Err()
				return
			}
			clicked := time.Now()
			c.spectator.clicked(i)
			items, err := click(ctx, i)
			outcomes[i] = outcome{items, time.Since(clicked), err}
			c.spectator.answered(i, outcomes[i])
		})
	}
	users.Wait()
	if !slices.ContainsFunc(outcomes, func(o outcome) bool { return o.err == nil }) {
		return nil, fmt.Errorf("nobody was served: %w", errors.Join(outcomes[0].err, context.Cause(ctx)))
	}
	return outcomes, nil
}

func (d *demo) printComparison(naive, shared half) error {
	_, err := fmt.Fprintf(d.out, `%d users click within %s, each for %d items of %q, on %d nodes and a machine of %d cores.
Naively each user runs the query and inserts the top items; with getwork one query serves all who wait.
A duplicate is an item that somebody else got, too. Waits are counted from the click. Both halves began with warm caches.

`, d.Users, d.Within, d.Count, firstTask, d.nodes(), runtime.NumCPU())
	if err != nil {
		return err
	}
	if err := cli.Table(d.out, []string{"", "NAIVE", "GETWORK"}, rowsOf(naive.figures().cells(), shared.figures().cells())); err != nil {
		return err
	}
	for _, h := range []half{naive, shared} {
		for _, o := range h.outcomes {
			if o.err != nil {
				_, err = fmt.Fprintf(d.out, "\nnot served: %v\n", o.err)
				break
			}
		}
	}
	return err
}
