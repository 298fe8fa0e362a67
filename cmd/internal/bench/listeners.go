package bench

import (
	"context"
	"fmt"
	"time"
)

// moreListeners are the nodes beside the one that is clicked on.
const moreListeners = 19

// listenersNeed is how many connections a server must have for them: each node holds a listener's and a few others.
const listenersNeed = 130

// clickSetup are the numbers of a measurement of steady clicks: one filling of the shelf is enough for them.
type clickSetup struct {
	items int
	lasts time.Duration
}

func (e *Env) clickSetup() clickSetup {
	if e.Quick {
		return clickSetup{items: 150_000, lasts: 2 * time.Second}
	}
	return clickSetup{items: 600_000, lasts: 5 * time.Second}
}

// listeners measures what it costs that others listen: each round is announced to all nodes.
func listeners(ctx context.Context, e *Env) ([]Figure, error) {
	enough, err := e.hasConnections(ctx, listenersNeed)
	if err != nil {
		return nil, err
	}
	if !enough {
		e.log("left out: %d nodes need a server with max_connections of %d", moreListeners+1, listenersNeed)
		return nil, nil
	}
	const users = 64
	alone := Figure{Key: "listeners_none", Name: "the same on one node alone", Unit: "clicks/s"}
	among := Figure{Key: "listeners", Name: fmt.Sprintf("Clicks from a fresh shelf, %d users, while %d more nodes listen", users, moreListeners), Unit: "clicks/s", Goal: atLeast(0.8)}
	for round := range e.Rounds {
		for _, f := range inTurn(round, &alone, &among) {
			more := 0
			if f == &among {
				more = moreListeners
			}
			rate, err := e.clicksAmong(ctx, users, more)
			if err != nil {
				return nil, fmt.Errorf("clicks with %d more nodes: %w", more, err)
			}
			f.Values = append(f.Values, rate)
		}
		e.log("round %d of %d: alone %.0f clicks/s, among %d others %.0f", round+1, e.Rounds, alone.Values[round], moreListeners, among.Values[round])
	}
	among.Limit = &alone
	return []Figure{among}, nil
}

// inTurn has another figure first in each round: what comes later is not always the slower one for it.
func inTurn(round int, a, b *Figure) []*Figure {
	if round%2 == 1 {
		return []*Figure{b, a}
	}
	return []*Figure{a, b}
}

func (e *Env) hasConnections(ctx context.Context, n int) (bool, error) {
	conn, err := e.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	var most int
	if err := conn.QueryRow(ctx, `select current_setting('max_connections')::int`).Scan(&most); err != nil {
		return false, fmt.Errorf("ask how many connections the server has: %w", err)
	}
	return most >= n, nil
}

// clicksAmong is how many clicks a second one node answers from a fresh shelf while so many others listen.
func (e *Env) clicksAmong(ctx context.Context, users, others int) (rate float64, err error) {
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer leave()
	if others > 0 {
		more, err := e.Start(ctx, string(s.name), others)
		if err != nil {
			return 0, err
		}
		defer more.Stop()
	}
	return s.shelfClicks(ctx, users, e.clickSetup())
}

// shelfClicks fills a shelf, and is how many clicks a second are answered from it.
func (s *stage) shelfClicks(ctx context.Context, users int, setup clickSetup) (rate float64, err error) {
	const task = "clicks"
	if err := s.makeItems(ctx, setup.items); err != nil {
		return 0, err
	}
	if err := s.task(ctx, task, itemsQuery, map[string]any{"max_candidates": setup.items, "fresh_for": "1h"}); err != nil {
		return 0, err
	}
	items, err := s.fillShelf(ctx, task)
	if err != nil {
		return 0, err
	}
	c, err := s.spread(ctx, spread{task: task, users: users, most: setup.items/wantedEach - 1}, setup.lasts)
	if err != nil {
		return 0, err
	}
	return c.rate(), s.check(ctx, task, append(items, c.items...))
}
