package bench

import (
	"context"
	"fmt"

	"getwork/cmd/internal/bench/stage"
)

// nodeCounts are one node and a dozen. Of the connections that the server must have for them, each node uses some.
var nodeCounts = []int{1, 12}

const nodesNeed = 130

func nodesFigures(*stage.Env) (all []*Figure) {
	for _, n := range nodeCounts {
		key, where := fmt.Sprintf("nodes_%d", n), "one node"
		if n > 1 {
			where = fmt.Sprintf("%d nodes", n)
		}
		all = append(all,
			&Figure{Key: key, Name: "Clicks from a fresh shelf, 64 users, " + where, Unit: "clicks/s"},
			&Figure{Key: key + "_cpu_database", Name: "The database's CPU for such a click, " + where, Unit: "µs"},
			&Figure{Key: key + "_cpu_node", Name: "The nodes' CPU for such a click, " + where, Unit: "µs"})
	}
	return all
}

// nodes measures what clicks cost when a dozen nodes share the users.
func nodes(ctx context.Context, r *Rounds) error {
	conn, err := r.Connect(ctx)
	if err != nil {
		return err
	}
	var most int
	err = conn.QueryRow(ctx, `select current_setting('max_connections')::int`).Scan(&most)
	_ = conn.Close(ctx)
	if err != nil {
		return fmt.Errorf("read the server's settings: %w", err)
	}
	for range r.Each() {
		for _, n := range nodeCounts {
			if n > 1 && most < nodesNeed {
				r.Logf("left out: %d nodes need a server with max_connections of %d", n, nodesNeed)
				continue
			}
			c, err := r.FreshClicks(ctx, stage.FreshLoad{Users: 64, Nodes: n})
			if err != nil {
				return err
			}
			key := fmt.Sprintf("nodes_%d", n)
			r.Add(key, c.Rate)
			r.addCPU(key, c)
		}
	}
	return nil
}
