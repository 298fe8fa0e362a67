package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"getwork/assign"
	"getwork/web"
)

// clicker is the name of a comparison's user, counted from 0. Nobody else should have one like it: what these users
// hold is given back.
func clicker(user int) string { return fmt.Sprintf("naive-demo-%03d", user+1) }

// realHalf has the same users click on the nodes.
func (d *demo) realHalf(ctx context.Context) (half, error) {
	clients := make([]*client, d.Users)
	for i := range clients {
		var err error
		if clients[i], err = d.client(i%len(d.nodes), clicker(i), web.Worker); err != nil {
			return half{}, err
		}
	}
	// A comparison that was killed may have left something.
	if err := giveBack(ctx, clients); err != nil {
		return half{}, err
	}
	defer func() {
		clean, cancel := context.WithTimeout(d.hurry, cleanUpWithin)
		defer cancel()
		_ = giveBack(clean, clients) // what failed is done by the next comparison
	}()
	last, err := d.runsSince(ctx, 0)
	if err != nil {
		return half{}, err
	}
	var h half
	before, _ := cpuTime(d.server.PID())
	h.outcomes, err = d.clicks(ctx, fmt.Sprintf("the same %d users click on the nodes", d.Users), func(ctx context.Context, user int) ([]string, error) {
		return clickAndAwait(ctx, clients[user], d.Count)
	})
	after, ok := cpuTime(d.server.PID())
	h.cpu, h.measured = after-before, ok
	if err != nil {
		return half{}, err
	}
	var newest int64
	if len(last) > 0 {
		newest = last[0].ID
	}
	runs, err := d.runsSince(ctx, newest)
	h.queries = len(runs)
	return h, err
}

// clickAndAwait gets work as a browser does that is pushed its result: it is told when there is one.
func clickAndAwait(ctx context.Context, c *client, count int) ([]string, error) {
	w := &wish{client: c, task: firstTask, count: count, key: rand.Text(), until: time.Now().Add(compareWithin)}
	if err := w.fulfil(ctx); err != nil {
		return nil, err
	}
	switch w.request.State {
	case assign.Assigned, assign.Partial:
	case assign.None:
		return nil, errors.New(noneText(&w.request))
	default:
		return nil, fmt.Errorf("request %d ended %s", w.request.ID, w.request.State)
	}
	items := make([]string, len(w.request.Work))
	for i, work := range w.request.Work {
		items[i] = work.Item
	}
	return items, nil
}

// runsSince are the task's runs after the one of that id, newest first. There are no more than users who click.
func (d *demo) runsSince(ctx context.Context, id int64) ([]assign.Run, error) {
	var body struct {
		Runs []assign.Run `json:"runs"`
	}
	if _, err := d.manager.do(ctx, call{method: "GET", path: "/tasks/" + firstTask + "/runs?limit=1000"}, &body); err != nil {
		return nil, fmt.Errorf("read the runs: %w", err)
	}
	for i, r := range body.Runs {
		if r.ID <= id {
			return body.Runs[:i], nil
		}
	}
	return body.Runs, nil
}

// giveBack lets go of all that the users hold or wait for.
func giveBack(ctx context.Context, clients []*client) error {
	for _, c := range clients {
		var p assign.Pipeline
		if _, err := c.do(ctx, call{method: "GET", path: "/pipeline"}, &p); err != nil {
			return fmt.Errorf("read what a user holds: %w", err)
		}
		for _, r := range p.Requests {
			_, err := c.do(ctx, call{method: "DELETE", path: "/requests/" + strconv.FormatInt(r.ID, 10)}, nil)
			if err != nil && !isRefused(err, 409) {
				return fmt.Errorf("cancel a request: %w", err)
			}
		}
		for _, w := range p.Work {
			path := "/work/" + url.PathEscape(strconv.FormatInt(w.ID, 10)) + "/disposition"
			at0 := assign.Disposition{Outcome: "return", After: new(assign.Duration(0))}
			if _, err := c.do(ctx, call{method: "POST", path: path, body: at0}, nil); err != nil {
				return fmt.Errorf("give work back: %w", err)
			}
		}
	}
	return nil
}
