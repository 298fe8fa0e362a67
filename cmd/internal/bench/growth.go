package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// point is a figure at one size.
type point struct {
	key, name, unit string
	rounds          int // at most this many, since the shape of the line matters
	at              func(ctx context.Context, e *Env) (float64, error)
}

// points returns the figures that grow: each at several sizes, which end their keys.
func points(e *Env) (all []point) {
	add := func(key, name, unit string, rounds, size int, at func(ctx context.Context, e *Env) (float64, error)) {
		all = append(all, point{"growth_" + key + "_" + strconv.Itoa(size), fmt.Sprintf(name, thousands(size)), unit, rounds, at})
	}
	clicks := func(l freshLoad) func(ctx context.Context, e *Env) (float64, error) {
		return func(ctx context.Context, e *Env) (float64, error) {
			c, err := e.freshClicks(ctx, l)
			return c.rate, err
		}
	}
	for _, users := range []int{1, 4, 16, 64, 256} {
		add("users", "Clicks of %s users on one node", "clicks/s", 3, users, clicks(freshLoad{users: users, nodes: 1}))
	}
	for _, nodes := range sized(e, []int{1, 2, 4}, []int{1, 2, 8, 20}) {
		add("nodes", "Clicks of 64 users, nodes: %s", "clicks/s", 3, nodes, clicks(freshLoad{users: 64, nodes: nodes}))
	}
	for _, tasks := range sized(e, []int{1, 5}, []int{1, 5, 20}) {
		add("tasks", "Clicks of 64 users, tasks: %s", "clicks/s", 3, tasks, clicks(freshLoad{users: 64, nodes: 1, tasks: tasks}))
	}
	for _, names := range sized(e, []int{1000}, []int{64, 100_000}) {
		add("names", "Clicks over 64 connections by %s people in turn", "clicks/s", 3, names, clicks(freshLoad{users: 64, nodes: 1, names: names}))
	}
	for _, rows := range sized(e, []int{10_000, 100_000}, []int{100_000, 1_000_000, 5_000_000}) {
		add("ranking_memory", "A node's memory at its peak, above that at rest, for a query with %s rows", "MiB", 3, rows, func(ctx context.Context, e *Env) (float64, error) {
			return e.rankingMemory(ctx, rows)
		})
	}
	for _, nodes := range []int{1, 3} {
		for _, users := range sized(e, []int{100, 300, 1000}, []int{100, 1000, 5000, 10_000}) {
			add(fmt.Sprintf("waiting_%d", nodes), fmt.Sprintf("The last of %%s waiting users, nodes: %d", nodes), "ms", 3, users,
				func(ctx context.Context, e *Env) (float64, error) {
					p, err := e.waitOnce(ctx, users, nodes)
					return p.last, err
				})
		}
	}
	if e.ServerPID == 0 {
		return all // the other points are CPU of the database
	}
	for _, part := range []string{"database", "node"} {
		for _, items := range sized(e, []int{1000, 10_000, 100_000}, []int{1000, 10_000, 100_000, 1_000_000}) {
			add("items_"+part, "The "+part+"'s CPU for a click, %s items on the shelf", "µs", 3, items, func(ctx context.Context, e *Env) (float64, error) {
				c, err := e.shelfCost(ctx, items)
				if part == "node" {
					return c.nodes, err
				}
				return c.database, err
			})
		}
	}
	for _, items := range sized(e, []int{10_000, 100_000}, []int{100_000, 1_000_000, 10_000_000}) {
		add("inbox", "CPU of a click with %s open items in the inbox", "µs", 1, items, func(ctx context.Context, e *Env) (float64, error) {
			if room, err := e.historyRoom(ctx); err != nil || room < items {
				return 0, err
			}
			return e.inboxCost(ctx, items)
		})
	}
	for _, rows := range sized(e, []int{10_000, 100_000}, []int{100_000, 1_000_000, 10_000_000}) {
		// Only once: filling the rows in takes long.
		add("history", "CPU of a click with %s rows of work history", "µs", 1, rows, func(ctx context.Context, e *Env) (cpu float64, err error) {
			if room, err := e.historyRoom(ctx); err != nil || room < rows {
				return 0, err
			}
			err = e.onPast(ctx, rows, historyItems(e), func(s *stage) error {
				c, err := s.clickAfter(ctx, sized(e, 1*time.Second, 2*time.Second))
				cpu = c.database + c.nodes
				return err
			})
			return cpu, err
		})
	}
	return all
}

func growthFigures(e *Env) (all []*Figure) {
	for _, p := range points(e) {
		all = append(all, &Figure{Key: p.key, Name: p.name, Unit: p.unit})
	}
	return all
}

// growth measures how figures grow.
func growth(ctx context.Context, r *rounds) error {
	for _, p := range points(r.Env) {
		for range min(r.Rounds, p.rounds) {
			value, err := p.at(ctx, r.Env)
			if err != nil {
				return fmt.Errorf("%s: %w", p.key, err)
			}
			if value > 0 { // otherwise there is no room for it
				r.add(p.key, value)
			}
		}
	}
	return nil
}
