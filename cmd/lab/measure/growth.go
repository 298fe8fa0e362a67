package measure

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
)

// point is a figure at one size.
type point struct {
	key, name, unit string
	rounds          int // at most this many, since the shape of the line matters
	at              func(ctx context.Context, e *stage.Env) (float64, error)
}

// points returns the figures that grow: each at several sizes, which end their keys.
func points(e *stage.Env) (all []point) {
	add := func(key, name, unit string, rounds, size int, at func(ctx context.Context, e *stage.Env) (float64, error)) {
		all = append(all, point{"growth_" + key + "_" + strconv.Itoa(size), fmt.Sprintf(name, bench.Thousands(size)), unit, rounds, at})
	}
	clicks := func(l stage.FreshLoad) func(ctx context.Context, e *stage.Env) (float64, error) {
		return func(ctx context.Context, e *stage.Env) (float64, error) {
			c, err := e.FreshClicks(ctx, l)
			return c.Rate, err
		}
	}
	for _, users := range []int{1, 4, 16, 64, 256} {
		add("users", "Clicks of %s users on one node", "clicks/s", 3, users, clicks(stage.FreshLoad{Users: users, Nodes: 1}))
	}
	for _, nodes := range stage.Sized(e, []int{1, 2, 4}, []int{1, 2, 8, 20}) {
		add("nodes", "Clicks of 64 users, nodes: %s", "clicks/s", 3, nodes, clicks(stage.FreshLoad{Users: 64, Nodes: nodes}))
	}
	for _, tasks := range stage.Sized(e, []int{1, 5}, []int{1, 5, 20}) {
		add("tasks", "Clicks of 64 users, tasks: %s", "clicks/s", 3, tasks, clicks(stage.FreshLoad{Users: 64, Nodes: 1, Tasks: tasks}))
	}
	for _, names := range stage.Sized(e, []int{1000}, []int{64, 100_000}) {
		add("names", "Clicks over 64 connections by %s people in turn", "clicks/s", 3, names, clicks(stage.FreshLoad{Users: 64, Nodes: 1, Names: names}))
	}
	for _, rows := range stage.Sized(e, []int{10_000, 100_000}, []int{100_000, 1_000_000, 5_000_000}) {
		add("ranking_memory", "A node's memory at its peak, above that at rest, for a query with %s rows", "MiB", 3, rows, func(ctx context.Context, e *stage.Env) (float64, error) {
			return rankingMemory(ctx, e, rows)
		})
	}
	for _, nodes := range []int{1, 3} {
		for _, users := range stage.Sized(e, []int{100, 300, 1000}, []int{100, 1000, 5000, 10_000}) {
			add(fmt.Sprintf("waiting_%d", nodes), fmt.Sprintf("The last of %%s waiting users, nodes: %d", nodes), "ms", 3, users,
				func(ctx context.Context, e *stage.Env) (float64, error) {
					p, err := waitOnce(ctx, e, users, nodes)
					return p.last, err
				})
		}
	}
	if e.ServerPID == 0 {
		return all // the other points are CPU of the database
	}
	for _, part := range []string{"database", "node"} {
		for _, items := range stage.Sized(e, []int{1000, 10_000, 100_000}, []int{1000, 10_000, 100_000, 1_000_000}) {
			add("items_"+part, "The "+part+"'s CPU for a click, %s items on the shelf", "µs", 3, items, func(ctx context.Context, e *stage.Env) (float64, error) {
				c, err := shelfCost(ctx, e, items)
				if part == "node" {
					return c.Nodes, err
				}
				return c.Database, err
			})
		}
	}
	for _, items := range stage.Sized(e, []int{10_000, 100_000}, []int{100_000, 1_000_000, 10_000_000}) {
		add("inbox", "CPU of a click with %s open items in the inbox", "µs", 1, items, func(ctx context.Context, e *stage.Env) (float64, error) {
			if room, err := historyRoom(ctx, e); err != nil || room < items {
				return 0, err
			}
			return inboxCost(ctx, e, items)
		})
	}
	for _, rows := range stage.Sized(e, []int{10_000, 100_000}, []int{100_000, 1_000_000, 10_000_000}) {
		// Only once: filling the rows in takes long.
		add("history", "CPU of a click with %s rows of work history", "µs", 1, rows, func(ctx context.Context, e *stage.Env) (cpu float64, err error) {
			if room, err := historyRoom(ctx, e); err != nil || room < rows {
				return 0, err
			}
			err = onPast(ctx, e, rows, historyItems(e), func(s *stage.Stage) error {
				c, err := clickAfter(ctx, s, stage.Sized(e, 1*time.Second, 2*time.Second))
				cpu = c.Database + c.Nodes
				return err
			})
			return cpu, err
		})
	}
	return all
}

func growthFigures(e *stage.Env) (all []*bench.Figure) {
	for _, p := range points(e) {
		all = append(all, &bench.Figure{Key: p.key, Name: p.name, Unit: p.unit})
	}
	return all
}

// growth measures how figures grow.
func growth(ctx context.Context, r *bench.Rounds) error {
	for _, p := range points(r.Env) {
		for range min(r.Rounds, p.rounds) {
			value, err := p.at(ctx, r.Env)
			if err != nil {
				return fmt.Errorf("%s: %w", p.key, err)
			}
			if value > 0 { // otherwise there is no room for it
				r.Add(p.key, value)
			}
		}
	}
	return nil
}
