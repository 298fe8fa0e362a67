package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// growthPrefix is what the keys of figures begin with that are points of a plot, not lines of the table.
const growthPrefix = "growth_"

// chart is a plot of figures: of each line those whose keys are its prefix and a number, which is their x.
type chart struct {
	file        string
	title, x, y string
	logY        bool
	lines       []chartLine
}

type chartLine struct{ name, prefix string }

// charts are all that there are.
var charts = []chart{
	{file: "growth-users.svg", title: "Clicks that one node serves", x: "users who click all the time", y: "clicks/s",
		lines: []chartLine{{"", "growth_users_"}}},
	{file: "growth-nodes.svg", title: "Clicks that several nodes serve", x: "nodes, on one machine", y: "clicks/s",
		lines: []chartLine{{"", "growth_nodes_"}}},
	{file: "growth-waiting.svg", title: "End of the query to the last user's items", x: "waiting users", y: "ms", logY: true,
		lines: []chartLine{{"one node", "growth_waiting_1_"}, {"three nodes", "growth_waiting_3_"}}},
	{file: "growth-items.svg", title: "What a click costs, by size of the shelf", x: "items on the shelf", y: "µs of CPU",
		lines: []chartLine{{"database", "growth_items_database_"}, {"node", "growth_items_node_"}}},
	{file: "growth-history.svg", title: "What a click costs, by length of history", x: "rows of work that are over", y: "µs of CPU, database and node",
		lines: []chartLine{{"", "growth_history_"}}},
}

// growthRounds is how often a point is taken at most: what is to be seen is the line.
func (e *Env) growthRounds() int { return min(e.Rounds, 3) }

// growth measures how figures grow.
func growth(ctx context.Context, e *Env) ([]Figure, error) {
	var all []Figure
	for _, part := range []func(context.Context, *Env) ([]Figure, error){usersGrowth, nodesGrowth, waitingGrowth, itemsGrowth, historyGrowth} {
		figures, err := part(ctx, e)
		if err != nil {
			return nil, err
		}
		all = append(all, figures...)
	}
	return all, nil
}

// grown is what is taken at each of some sizes: a figure for each, whose name has the size in it.
type grown struct{ prefix, name, unit string }

// grow takes figures at each size, all of them in each round; at brings a value of each.
func grow(e *Env, what []grown, sizes []int, at func(size int) ([]float64, error)) ([]Figure, error) {
	var figures []Figure
	for _, size := range sizes {
		for _, w := range what {
			figures = append(figures, Figure{Key: w.prefix + strconv.Itoa(size), Name: fmt.Sprintf(w.name, size), Unit: w.unit})
		}
	}
	for round := range e.growthRounds() {
		for i, size := range sizes {
			of := figures[i*len(what) : (i+1)*len(what)]
			values, err := at(size)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", of[0].Name, err)
			}
			for j, v := range values {
				of[j].Values = append(of[j].Values, v)
				e.log("round %d of %d: %s: %s %s", round+1, e.growthRounds(), of[j].Name, short(v), of[j].Unit)
			}
		}
	}
	return figures, nil
}

func usersGrowth(ctx context.Context, e *Env) ([]Figure, error) {
	what := []grown{{"growth_users_", "clicks of %d users on one node", "clicks/s"}}
	return grow(e, what, []int{1, 4, 16, 64, 256}, func(users int) ([]float64, error) { return e.clicksOn(ctx, users, 1) })
}

func nodesGrowth(ctx context.Context, e *Env) ([]Figure, error) {
	what := []grown{{"growth_nodes_", "clicks of 64 users on %d nodes", "clicks/s"}}
	return grow(e, what, []int{1, 2, 4}, func(nodes int) ([]float64, error) { return e.clicksOn(ctx, 64, nodes) })
}

// clicksOn is how many clicks a second so many nodes answer from a fresh shelf.
func (e *Env) clicksOn(ctx context.Context, users, nodes int) ([]float64, error) {
	s, leave, err := e.stage(ctx, nodes)
	if err != nil {
		return nil, err
	}
	defer leave()
	rate, err := s.shelfClicks(ctx, users, e.clickSetup())
	return []float64{rate}, err
}

func waitingGrowth(ctx context.Context, e *Env) ([]Figure, error) {
	sizes := []int{100, 1000, 5000, 10_000}
	if e.Quick {
		sizes = []int{100, 300, 1000}
	}
	var all []Figure
	for _, nodes := range []int{1, 3} {
		what := []grown{{fmt.Sprintf("growth_waiting_%d_", nodes), fmt.Sprintf("the last of %%d waiting users, nodes: %d", nodes), "ms"}}
		figures, err := grow(e, what, sizes, func(users int) ([]float64, error) {
			p, err := e.waitOnce(ctx, users, nodes)
			return []float64{millis(p.last)}, err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, figures...)
	}
	return all, nil
}

func itemsGrowth(ctx context.Context, e *Env) ([]Figure, error) {
	if e.ServerPID == 0 {
		e.log("the database's CPU is not known: items are left out")
		return nil, nil
	}
	sizes := []int{1000, 10_000, 100_000, 1_000_000}
	if e.Quick {
		sizes = []int{1000, 10_000, 100_000}
	}
	what := []grown{
		{"growth_items_database_", "the database's CPU for a click, %d items on the shelf", "µs"},
		{"growth_items_node_", "the node's CPU for a click, %d items on the shelf", "µs"},
	}
	return grow(e, what, sizes, func(items int) ([]float64, error) {
		database, node, err := e.shelfCost(ctx, items)
		return []float64{database, node}, err
	})
}

// costClicks is how many clicks are counted, so that each costs a share of the same.
const costClicks = 3000

// shelfCost is the CPU time of a click from a fresh shelf of that many items, in µs. Of small shelves it takes several.
func (e *Env) shelfCost(ctx context.Context, items int) (database, node float64, err error) {
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	if err := s.makeItems(ctx, items); err != nil {
		return 0, 0, err
	}
	each := min(costClicks, items/wantedEach-1)
	var used, usedByNode time.Duration
	clicks := 0
	for n := range (costClicks + each - 1) / each {
		task := fmt.Sprintf("cost-%d", n)
		if err := s.task(ctx, task, itemsQuery, map[string]any{"max_candidates": items, "fresh_for": "1h"}); err != nil {
			return 0, 0, err
		}
		given, err := s.fillShelf(ctx, task)
		if err != nil {
			return 0, 0, err
		}
		before, beforeNode, err := s.cost()
		if err != nil {
			return 0, 0, err
		}
		c, err := s.spread(ctx, spread{task: task, users: 16, most: each}, time.Minute)
		if err != nil {
			return 0, 0, err
		}
		after, afterNode, err := s.cost()
		if err != nil {
			return 0, 0, err
		}
		used, usedByNode, clicks = used+after-before, usedByNode+afterNode-beforeNode, clicks+c.clicks
		if err := s.check(ctx, task, append(given, c.items...)); err != nil {
			return 0, 0, err
		}
	}
	return micros(used) / float64(clicks), micros(usedByNode) / float64(clicks), nil
}

// cost is the CPU time that the database and the first node have used so far.
func (s *stage) cost() (database, node time.Duration, err error) {
	if database, err = s.env.databaseRanFor(); err != nil {
		return 0, 0, err
	}
	node, err = ranFor(s.nodes.PID(0))
	return database, node, err
}

// historyGrowth fills in each history once, since that takes long.
func historyGrowth(ctx context.Context, e *Env) ([]Figure, error) {
	if e.ServerPID == 0 {
		e.log("the database's CPU is not known: the history is left out")
		return nil, nil
	}
	sizes, items, window := []int{100_000, 1_000_000, 10_000_000}, 1_500_000, 2*time.Second
	if e.Quick {
		sizes, items, window = []int{10_000, 100_000}, 400_000, time.Second
	}
	var figures []Figure
	for _, size := range sizes {
		if room, note, err := e.longHistory(ctx, size); err != nil || room < size {
			e.log("a history of %s rows is left out: %s", thousands(size), note)
			return figures, err
		}
		f := Figure{Key: "growth_history_" + strconv.Itoa(size), Name: "CPU of a click with " + thousands(size) + " rows of work history", Unit: "µs"}
		if err := e.historyPoint(ctx, &f, size, items, window); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		figures = append(figures, f)
	}
	return figures, nil
}

func (e *Env) historyPoint(ctx context.Context, f *Figure, rows, items int, window time.Duration) error {
	p, leave, err := e.past(ctx, rows, items)
	if err != nil {
		return err
	}
	defer leave()
	for round := range e.growthRounds() {
		_, cpu, err := p.take(ctx, window)
		if err != nil {
			return err
		}
		f.Values = append(f.Values, cpu)
		e.log("round %d of %d: %s: %s µs", round+1, e.growthRounds(), f.Name, short(cpu))
	}
	return nil
}

// WritePlots draws the plots of growth into a folder; those that there are no figures of it leaves as they are.
func WritePlots(folder string, figures []Figure) error {
	for _, c := range charts {
		p, some := c.plot(figures)
		if !some {
			continue
		}
		b, err := p.svg()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, c.file), b, 0o644); err != nil {
			return fmt.Errorf("write a plot: %w", err)
		}
	}
	return nil
}

// plot is what the figures say of it, if they say something.
func (c chart) plot(figures []Figure) (p plot, some bool) {
	p = plot{Title: c.title, X: c.x, Y: c.y, LogY: c.logY}
	for _, l := range c.lines {
		line := curve{Name: l.name}
		for _, f := range figures {
			if x, err := strconv.Atoi(strings.TrimPrefix(f.Key, l.prefix)); err == nil && strings.HasPrefix(f.Key, l.prefix) {
				line.Points = append(line.Points, point{float64(x), f.Median()})
			}
		}
		slices.SortFunc(line.Points, func(a, b point) int { return cmp.Compare(a.X, b.X) })
		if len(line.Points) > 0 {
			p.Curves = append(p.Curves, line)
		}
	}
	return p, len(p.Curves) > 0
}
