package measure

import (
	"context"
	"fmt"
	"slices"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
)

// moreListeners is the number of nodes besides the one that is clicked on. The server needs enough connections for
// them: each node has one for its listener and a few others.
const (
	moreListeners = 19
	listenersNeed = 130
)

func listenersFigures(*stage.Env) []*bench.Figure {
	alone := &bench.Figure{Key: "listeners_none", Name: "the same on one node alone", Unit: "clicks/s"}
	return []*bench.Figure{{Key: "listeners", Name: fmt.Sprintf("Clicks from a fresh shelf, 64 users, while %d more nodes listen", moreListeners), Unit: "clicks/s", Limit: alone, Goal: bench.AtLeast(0.8)}}
}

// listeners measures the cost of other nodes that listen: each round is announced to all nodes.
func listeners(ctx context.Context, r *bench.Rounds) error {
	conn, err := r.Connect(ctx)
	if err != nil {
		return err
	}
	var most int
	err = conn.QueryRow(ctx, `select current_setting('max_connections')::int`).Scan(&most)
	_ = conn.Close(ctx)
	if err != nil || most < listenersNeed {
		r.Logf("left out: %d nodes need a server with max_connections of %d", moreListeners+1, listenersNeed)
		return err
	}
	takes := []func() error{
		func() error { return takeAmong(ctx, r, "listeners_none", 0) },
		func() error { return takeAmong(ctx, r, "listeners", moreListeners) },
	}
	for range r.Each() {
		for _, take := range takes {
			if err := take(); err != nil {
				return err
			}
		}
		slices.Reverse(takes) // so that being later does not always count against the same one
	}
	return nil
}

func takeAmong(ctx context.Context, r *bench.Rounds, key string, others int) error {
	c, err := r.FreshClicks(ctx, stage.FreshLoad{Users: 64, Nodes: 1, Others: others})
	if err == nil {
		r.Add(key, c.Rate)
	}
	return err
}
