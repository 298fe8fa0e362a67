package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// costClicks is how many clicks are counted, so that fixed costs are shared by equally many.
const costClicks = 3000

// shelfCost returns what a click from a fresh shelf of that many items costs. It uses several small shelves.
func (e *Env) shelfCost(ctx context.Context, items int) (c cost, err error) {
	err = e.on(ctx, 1, func(s *stage) error {
		if err := s.makeItems(ctx, items); err != nil {
			return err
		}
		clicks := 0
		for n := 0; clicks < costClicks; n++ {
			task := fmt.Sprintf("cost-%d", n)
			if err := s.fill(ctx, task, itemsQuery, items, untilEnd); err != nil {
				return err
			}
			before, err := s.usage()
			if err != nil {
				return err
			}
			out, err := s.run(ctx, ctx, load{task: task, users: 16, most: min(costClicks-clicks, items/wantedEach-1)})
			if err != nil {
				return err
			}
			after, err := s.usage()
			if err != nil {
				return err
			}
			clicks += len(out.clicks)
			c.database += micros(after.database - before.database)
			c.nodes += micros(after.nodes - before.nodes)
			if err := s.check(ctx, task); err != nil {
				return err
			}
		}
		c.database, c.nodes = c.database/float64(clicks), c.nodes/float64(clicks)
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
func (e *Env) inboxCost(ctx context.Context, items int) (cpu float64, err error) {
	err = e.on(ctx, 1, func(s *stage) error {
		const task = "inbox"
		if err := s.call(ctx, 0, "bench", http.MethodPost, "/api/v1/tasks", map[string]any{"name": task, "max_request": 10}, http.StatusCreated); err != nil {
			return err
		}
		if err := s.exec(ctx, "fill the inbox", []string{fillInbox}, task, items); err != nil {
			return err
		}
		if err := s.exec(ctx, "analyze the inbox", []string{`vacuum analyze getwork.item`}); err != nil {
			return err
		}
		if err := s.firstClick(ctx, task); err != nil {
			return err
		}
		before, err := s.usage()
		if err != nil {
			return err
		}
		out, err := s.run(ctx, ctx, load{task: task, users: 16, most: min(costClicks, items/wantedEach/2)})
		if err != nil {
			return err
		}
		after, err := s.usage()
		if err != nil {
			return err
		}
		cpu = micros(after.database-before.database+after.nodes-before.nodes) / float64(len(out.clicks))
		return s.check(ctx, task)
	})
	return cpu, err
}

// rankingMemory returns the MiB that a node's memory grew by, at the most, while a query returned that many rows. A million of them,
// or all that there are, become candidates.
func (e *Env) rankingMemory(ctx context.Context, rows int) (mib float64, err error) {
	err = e.on(ctx, 1, func(s *stage) error {
		sleep(ctx, time.Second) // the node's start is over
		before := peak(s.nodes[0].PID())
		query := fmt.Sprintf("select i as item, 'customer ' || i as customer from generate_series(1, %d) i order by i", rows)
		if err := s.fill(ctx, "ranking", query, min(rows, 1_000_000), untilEnd); err != nil {
			return err
		}
		if most := peak(s.nodes[0].PID()); before > 0 {
			mib = max(most-before, 0.1) / 1024 // never 0, which says that there was no room
		}
		return nil
	})
	return mib, err
}
