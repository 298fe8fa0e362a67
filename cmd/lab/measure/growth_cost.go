package measure

import (
	"context"
	"fmt"
	"time"

	"getwork/cmd/internal/bench/stage"
)

// costClicks is how many clicks are counted, so that fixed costs are shared by equally many.
const costClicks = 3000

// shelfCost returns what a click from a fresh shelf of that many items costs. It uses several small shelves.
func shelfCost(ctx context.Context, e *stage.Env, items int) (c stage.Cost, err error) {
	err = e.On(ctx, 1, func(s *stage.Stage) error {
		if err := s.MakeItems(ctx, items); err != nil {
			return err
		}
		clicks := 0
		for n := 0; clicks < costClicks; n++ {
			task := fmt.Sprintf("cost-%d", n)
			if err := s.Fill(ctx, task, stage.ItemsQuery, items, stage.UntilEnd); err != nil {
				return err
			}
			out, err := s.Run(ctx, ctx, stage.Load{Task: task, Users: 16, Most: min(costClicks-clicks, items/stage.WantedEach-1)})
			if err != nil {
				return err
			}
			some, share := out.Cost(), float64(len(out.Clicks))/costClicks
			c.Database, c.Nodes = c.Database+share*some.Database, c.Nodes+share*some.Nodes
			clicks += len(out.Clicks)
			if err := s.Check(ctx, task); err != nil {
				return err
			}
		}
		return nil
	})
	return c, err
}

const fillInbox = `
insert into getwork.item (task_id, item, details, pushed_by)
select t.task_id, g::text, '{"customer": "customer 1", "amount": 1}', 'bench'
from getwork.task_state t, generate_series(1, $2::bigint) g
where t.name = $1`

// inboxCost returns the CPU of a click, database and node, from an inbox with that many open items.
func inboxCost(ctx context.Context, e *stage.Env, items int) (cpu float64, err error) {
	err = e.On(ctx, 1, func(s *stage.Stage) error {
		const task = "inbox"
		if err := s.Call(ctx, 0, "bench", "manager", "/api/v1/tasks", map[string]any{"name": task, "max_request": 10}); err != nil {
			return err
		}
		if err := s.Exec(ctx, "fill the inbox", []string{fillInbox}, task, items); err != nil {
			return err
		}
		if err := s.Exec(ctx, "analyze the inbox", []string{`vacuum analyze getwork.item`}); err != nil {
			return err
		}
		if err := s.FirstClick(ctx, task); err != nil {
			return err
		}
		out, err := s.Run(ctx, ctx, stage.Load{Task: task, Users: 16, Most: min(costClicks, items/stage.WantedEach/2)})
		if err != nil {
			return err
		}
		cpu = out.Cost().Database + out.Cost().Nodes
		return s.Check(ctx, task)
	})
	return cpu, err
}

// rankingMemory returns the MiB that a node's memory grew by, at the most, while a query returned that many rows. A million of them,
// or all that there are, become candidates.
func rankingMemory(ctx context.Context, e *stage.Env, rows int) (mib float64, err error) {
	err = e.On(ctx, 1, func(s *stage.Stage) error {
		stage.Sleep(ctx, time.Second) // the node's start is over
		before := peak(s.Nodes[0].PID())
		query := fmt.Sprintf("select i as item, 'customer ' || i as customer from generate_series(1, %d) i order by i", rows)
		if err := s.Fill(ctx, "ranking", query, min(rows, 1_000_000), stage.UntilEnd); err != nil {
			return err
		}
		if most := peak(s.Nodes[0].PID()); before > 0 {
			mib = max(most-before, 0.1) / 1024 // never 0, which says that there was no room
		}
		return nil
	})
	return mib, err
}
