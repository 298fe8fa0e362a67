package bench

import (
	"context"
	"fmt"
	"time"
)

// compareSetup are the numbers of a comparison: one shelf for all of a window, so that no run falls into it.
type compareSetup struct {
	users  int
	items  int
	window time.Duration
}

func (e *Env) compareSetups() []compareSetup {
	items, window := 400_000, 10*time.Second
	if e.Quick {
		items, window = 100_000, 2*time.Second
	}
	return []compareSetup{{users: 64, items: items, window: window}, {users: 256, items: items, window: window}}
}

// compared are the figures of one number of users: this program against another, and each program against itself.
// The second pair is what the machine's noise alone makes of the same figure.
type compared struct {
	setup                   compareSetup
	database, databaseNoise Figure
	node, nodeNoise         Figure
}

func newCompared(setup compareSetup) *compared {
	key, of := fmt.Sprintf("against_%d", setup.users), fmt.Sprintf("%d users", setup.users)
	const ofBinaries, ofItself = ", this program to the other one, ", ", the same program twice, "
	most := 1.03
	return &compared{
		setup:         setup,
		database:      Figure{Key: key + "_cpu_database", Name: "The database's CPU for a click" + ofBinaries + of, Unit: "x", Goal: &Goal{AtMost: &most}},
		databaseNoise: Figure{Key: key + "_cpu_database_noise", Name: "The database's CPU for a click" + ofItself + of, Unit: "x"},
		node:          Figure{Key: key + "_cpu_node", Name: "The node's CPU for a click" + ofBinaries + of, Unit: "x", Goal: &Goal{AtMost: &most}},
		nodeNoise:     Figure{Key: key + "_cpu_node_noise", Name: "The node's CPU for a click" + ofItself + of, Unit: "x"},
	}
}

// against compares the CPU per click of this program with that of e.Against. Each round takes this one, the other, the
// other again and this one again, so that a machine that grows slower or faster meanwhile favours neither.
func against(ctx context.Context, e *Env) ([]Figure, error) {
	other := *e
	other.Binary = e.Against
	var all []*compared
	for _, setup := range e.compareSetups() {
		all = append(all, newCompared(setup))
	}
	for round := range e.Rounds {
		for _, c := range all {
			e.log("round %d of %d: %d users, this program, the other, the other, this one", round+1, e.Rounds, c.setup.users)
			var database, node [4]float64
			for i, env := range []*Env{e, &other, &other, e} {
				taken, err := env.clickCost(ctx, c.setup)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", env.Binary, err)
				}
				database[i], node[i] = taken.database.Median(), taken.node.Median()
			}
			addABBA(&c.database, &c.databaseNoise, database)
			addABBA(&c.node, &c.nodeNoise, node)
		}
	}
	var figures []Figure
	for _, c := range all {
		figures = append(figures, c.database, c.databaseNoise, c.node, c.nodeNoise)
	}
	return figures, nil
}

// addABBA adds what one round brought: a is this program's first value, then come the other's two and this one's second.
// A value of 0 was not known, as the database's is where the server is on another machine.
func addABBA(ratio, noise *Figure, v [4]float64) {
	for _, value := range v {
		if value == 0 {
			return
		}
	}
	ratio.Values = append(ratio.Values, (v[0]+v[3])/(v[1]+v[2]))
	noise.Values = append(noise.Values, v[2]/v[1], v[3]/v[0])
}

// clickCost is what a click on a fresh shelf costs, on a getwork of its own.
func (e *Env) clickCost(ctx context.Context, setup compareSetup) (*clicksFigures, error) {
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.makeItems(ctx, setup.items); err != nil {
		return nil, err
	}
	settings := map[string]any{"max_candidates": setup.items, "fresh_for": "24h"}
	if err := s.task(ctx, "clicks", itemsQuery, settings); err != nil {
		return nil, err
	}
	first, err := s.fillShelf(ctx, "clicks")
	if err != nil {
		return nil, err
	}
	l := load{url: s.nodes.URL(0), task: "clicks", users: setup.users, count: 3, most: int64(setup.items/3 - setup.users)}
	out, used, err := s.measure(ctx, l, setup.window, nil)
	if err != nil {
		return nil, err
	}
	c := newClicksFigures(setup.users)
	c.add(out, used, nil)
	return c, s.check(ctx, "clicks", append(out.items, first...))
}
