package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// moreListeners is the number of nodes besides the one that is clicked on. The server needs enough connections for
// them: each node has one for its listener and a few others.
const (
	moreListeners = 19
	listenersNeed = 130
)

func listenersFigures(*Env) []*Figure {
	alone := &Figure{Key: "listeners_none", Name: "the same on one node alone", Unit: "clicks/s"}
	return []*Figure{{Key: "listeners", Name: fmt.Sprintf("Clicks from a fresh shelf, 64 users, while %d more nodes listen", moreListeners), Unit: "clicks/s", Limit: alone, Goal: atLeast(0.8)}}
}

// listeners measures the cost of other nodes that listen: each round is announced to all nodes.
func listeners(ctx context.Context, r *rounds) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	var most int
	err = conn.QueryRow(ctx, `select current_setting('max_connections')::int`).Scan(&most)
	_ = conn.Close(ctx)
	if err != nil || most < listenersNeed {
		r.log("left out: %d nodes need a server with max_connections of %d", moreListeners+1, listenersNeed)
		return err
	}
	takes := []func() error{
		func() error { return r.takeAmong(ctx, "listeners_none", 0) },
		func() error { return r.takeAmong(ctx, "listeners", moreListeners) },
	}
	for range r.each() {
		for _, take := range takes {
			if err := take(); err != nil {
				return err
			}
		}
		slices.Reverse(takes) // so that being later does not always count against the same one
	}
	return nil
}

func (r *rounds) takeAmong(ctx context.Context, key string, others int) error {
	c, err := r.freshClicks(ctx, freshLoad{users: 64, nodes: 1, others: others})
	if err == nil {
		r.add(key, c.rate)
	}
	return err
}

// freshLoad is a load on a shelf that stays fresh for a whole window, so that no run falls into it.
type freshLoad struct {
	users, nodes int
	tasks, names int           // as a load's; 0: one, and the users' own
	others       int           // nodes on which nobody clicks
	items        int           // 0: enough for the usual window
	window       time.Duration // 0: the usual one
}

// freshClicks returns what clicks on a fresh shelf cost, on a getwork of its own.
func (e *Env) freshClicks(ctx context.Context, l freshLoad) (c cost, err error) {
	if l.items == 0 {
		l.items, l.window = sized(e, 150_000, 600_000), sized(e, 2*time.Second, 5*time.Second)
	}
	err = e.on(ctx, l.nodes, func(s *stage) error {
		tasks := []string{"clicks"}
		for n := 1; n < l.tasks; n++ {
			tasks = append(tasks, fmt.Sprint("clicks-", n))
		}
		if l.others > 0 {
			if err := s.start(ctx, l.others); err != nil {
				return err
			}
		}
		each := l.items / len(tasks)
		if err := s.makeItems(ctx, each); err != nil {
			return err
		}
		for _, task := range tasks {
			if err := s.fill(ctx, task, itemsQuery, each, untilEnd); err != nil {
				return err
			}
		}
		most := l.items/wantedEach - l.users
		if len(tasks) > 1 {
			most = most * 4 / 5 // one may be quicker than others
		}
		if err := s.knows(ctx, l.users); err != nil {
			return err
		}
		out, err := s.measure(ctx, load{among: tasks, users: l.users, names: l.names, nodes: l.nodes, most: most}, l.window, nil)
		if err != nil {
			return err
		}
		c = out.cost()
		for _, task := range tasks {
			if err := s.check(ctx, task); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%s, %d users, nodes: %d and %d: %w", e.Binary, l.users, l.nodes, l.others, err)
	}
	return c, err
}
