package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cli"
	"getwork/web"
)

// followEvery is how often the runs are read while users click.
const followEvery = 150 * time.Millisecond

// clicker returns the name of a contest's user, counted from 0. No other user should have such a name: whatever these
// users hold is given back.
func clicker(user int) string { return fmt.Sprintf("demo person %02d", user+1) }

// realHalf has the users click on the nodes. They keep what they get until giveBack.
func (c *contest) realHalf(ctx context.Context) (half, error) {
	clients, hangUp, err := c.clients()
	if err != nil {
		return half{}, err
	}
	defer hangUp()
	// A contest that was killed may have left work with the users.
	if err := giveBack(ctx, clients); err != nil {
		return half{}, err
	}
	last, err := c.runsSince(ctx, 0)
	if err != nil {
		return half{}, err
	}
	var newest int64
	if len(last) > 0 {
		newest = last[0].ID
	}
	unfollow := c.follow(ctx, newest)
	var h half
	before, _ := cpuTime(c.server.PID())
	h.outcomes, err = c.clicks(ctx, fmt.Sprintf("the same %d users click on the nodes", c.users), func(ctx context.Context, user int) ([]string, error) {
		return clickAndAwait(ctx, clients[user], c.count, func() *cli.Client {
			other, _ := c.client(user, clicker(user), web.Worker)
			return other
		})
	})
	unfollow()
	after, ok := cpuTime(c.server.PID())
	h.cpu, h.measured = after-before, ok
	if err != nil {
		return half{}, err
	}
	runs, err := c.runsSince(ctx, newest)
	h.queries = len(runs)
	c.spectator.ran(runs)
	return h, err
}

// follow reports to the spectator the task's runs after the one with that id, until the function that it returns is called.
func (c *contest) follow(ctx context.Context, id int64) (unfollow func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(followEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if runs, err := c.runsSince(ctx, id); err == nil {
				c.spectator.ran(runs)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// clients returns the users, spread over the living nodes, until hangUp is called.
func (c *contest) clients() (clients []*cli.Client, hangUp func(), err error) {
	clients = make([]*cli.Client, c.users)
	for i := range clients {
		if clients[i], err = c.client(i, clicker(i), web.Worker); err != nil {
			return nil, nil, err
		}
	}
	return clients, func() {
		for _, user := range clients {
			user.HTTP.CloseIdleConnections()
		}
	}, nil
}

// giveBack lets go of everything that a contest's users hold or wait for, and removes these users from all figures, even after
// an interruption. The next contest retries what fails.
func (c *contest) giveBack() {
	ctx, cancel := context.WithTimeout(c.hurry, cleanUpWithin)
	defer cancel()
	if clients, hangUp, err := c.clients(); err == nil {
		defer hangUp()
		_ = giveBack(ctx, clients)
	}
	_ = c.forget(ctx, false)
}

// clickAndAwait gets work as a browser does to which the result is pushed.
//
// other returns a client of the same user at a living node, in case theirs is killed; a load balancer would do the
// same.
func clickAndAwait(ctx context.Context, c *cli.Client, count int, other func() *cli.Client) ([]string, error) {
	// Asked is set although the node may not be reachable at first: it was there, and may be started again.
	w := &cli.WorkRequest{Client: c, Task: firstTask, Count: count, Key: rand.Text(), Until: time.Now().Add(compareWithin), Asked: true, Other: other}
	defer func() { w.Client.HTTP.CloseIdleConnections() }()
	if err := w.Await(ctx); err != nil {
		return nil, err
	}
	switch w.Request.State {
	case assign.Assigned, assign.Partial:
	case assign.None:
		return nil, errors.New(cli.NoneText(&w.Request))
	default:
		return nil, fmt.Errorf("request %d ended %s", w.Request.ID, w.Request.State)
	}
	items := make([]string, len(w.Request.Work))
	for i, work := range w.Request.Work {
		items[i] = work.Item
	}
	return items, nil
}

// runsSince returns the task's runs after the one with that id, newest first. There are no more of them than users who
// click.
func (d *demo) runsSince(ctx context.Context, id int64) ([]assign.Run, error) {
	manager, err := d.manager()
	if err != nil {
		return nil, err
	}
	var body struct {
		Runs []assign.Run `json:"runs"`
	}
	if _, err := manager.Do(ctx, cli.Call{Method: "GET", Path: "/tasks/" + firstTask + "/runs?limit=1000"}, &body); err != nil {
		return nil, fmt.Errorf("read the runs: %w", err)
	}
	for i, r := range body.Runs {
		if r.ID <= id {
			return body.Runs[:i], nil
		}
	}
	return body.Runs, nil
}

// giveBack lets go of everything that the users hold or wait for.
func giveBack(ctx context.Context, clients []*cli.Client) error {
	for _, c := range clients {
		var p assign.Pipeline
		if _, err := c.Do(ctx, cli.Call{Method: "GET", Path: "/pipeline"}, &p); err != nil {
			return fmt.Errorf("read what a user holds: %w", err)
		}
		for _, r := range p.Requests {
			_, err := c.Do(ctx, cli.Call{Method: "DELETE", Path: "/requests/" + strconv.FormatInt(r.ID, 10)}, nil)
			if err != nil && !cli.IsRefused(err, 409) {
				return fmt.Errorf("cancel a request: %w", err)
			}
		}
		for _, w := range p.Work {
			path := "/work/" + url.PathEscape(strconv.FormatInt(w.ID, 10)) + "/disposition"
			at0 := assign.Disposition{Outcome: "return", After: new(assign.Duration(0))}
			if _, err := c.Do(ctx, cli.Call{Method: "POST", Path: path, Body: at0}, nil); err != nil {
				return fmt.Errorf("give work back: %w", err)
			}
		}
	}
	return nil
}
