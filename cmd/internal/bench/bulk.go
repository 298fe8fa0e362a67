package bench

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/bench/stage"
	"getwork/ws/agent"
	"getwork/ws/client"
)

func bulkFigures(*stage.Env) []*Figure {
	return []*Figure{
		{Key: "bulk_rate", Name: "Items of an inbox taken by 500 and completed in one call each, one program", Unit: "items/s"},
		{Key: "bulk_cpu", Name: "CPU of database and node for an item", Unit: "µs", Goal: AtMost(160)},
		{Key: "bulk_cpu_database", Name: "The database's CPU for an item", Unit: "µs"},
		{Key: "bulk_cpu_node", Name: "The node's CPU for an item", Unit: "µs"},
		{Key: "bulk_agent_rate", Name: "Items worked by ws/agent, 200 at a time, with a handler that does nothing", Unit: "items/s"},
		{Key: "bulk_agent_cpu_database", Name: "The database's CPU for an item", Unit: "µs"},
		{Key: "bulk_agent_cpu_node", Name: "The node's CPU for an item", Unit: "µs"},
		{Key: "bulk_lines_rate", Name: "Items worked by getwork agent --lines, 200 at a time, with sed", Unit: "items/s"},
		{Key: "bulk_lines_cpu_database", Name: "The database's CPU for an item", Unit: "µs"},
		{Key: "bulk_lines_cpu_node", Name: "The node's CPU for an item", Unit: "µs"},
	}
}

// bulk measures what programs do by the thousand.
func bulk(ctx context.Context, r *Rounds) error {
	items := stage.Sized(r.Env, 4_000, 40_000)
	for range r.Each() {
		for _, part := range []struct {
			prefix string
			work   func(ctx context.Context, s *stage.Stage, task string, items int) error
		}{{"bulk", takeAndComplete}, {"bulk_agent", workByAgent}, {"bulk_lines", workByLines}} {
			if part.prefix == "bulk_lines" && exec.CommandContext(ctx, "sed", "-u", "p").Run() != nil {
				r.Logf("--lines is left out: there is no sed that takes -u")
				continue
			}
			err := r.On(ctx, 1, func(s *stage.Stage) error {
				c, err := bulkCost(ctx, s, items, part.work)
				if err != nil {
					return err
				}
				r.Add(part.prefix+"_rate", c.Rate)
				if part.prefix == "bulk" && c.Database > 0 && c.Nodes > 0 {
					r.Add("bulk_cpu", c.Database+c.Nodes)
				}
				r.addCPU(part.prefix, c)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	bulkTask  = "bulk"
	countDone = `select count(*) filter (where done_at is not null), count(*) from getwork.item`
)

// bulkCost fills an inbox, lets work empty it, and returns what an item cost. Every item must be done at the end.
func bulkCost(ctx context.Context, s *stage.Stage, items int, work func(ctx context.Context, s *stage.Stage, task string, items int) error) (c stage.Cost, err error) {
	boss := s.Client(0)
	boss.User, boss.Role = "boss", "manager"
	settings := map[string]any{"name": bulkTask, "max_request": 500}
	if _, err := boss.CreateTask(ctx, settings); err != nil {
		return c, fmt.Errorf("make the inbox: %w", err)
	}
	for from := 0; from < items; from += 1000 {
		batch := make([]assign.NewItem, min(1000, items-from))
		for i := range batch {
			batch[i].Item = fmt.Sprint(from + i)
		}
		if _, err := boss.PushItems(ctx, bulkTask, batch); err != nil {
			return c, fmt.Errorf("fill the inbox: %w", err)
		}
	}
	if err := s.Exec(ctx, "tidy up", []string{`vacuum analyze getwork.item`}); err != nil {
		return c, err
	}
	before, err := s.Usage()
	if err != nil {
		return c, err
	}
	if err := work(ctx, s, bulkTask, items); err != nil {
		return c, err
	}
	after, err := s.Usage()
	if err != nil {
		return c, err
	}
	var done, all int
	if err := s.Conn.QueryRow(ctx, s.SQL(countDone)).Scan(&done, &all); err != nil {
		return c, fmt.Errorf("count what is done: %w", err)
	}
	if done != items || all != items {
		return c, fmt.Errorf("check: of %d items %d are done, and there are %d", items, done, all)
	}
	return stage.CostOf(before, after, items), nil
}

// takeAndComplete is a program without a package for it.
func takeAndComplete(ctx context.Context, s *stage.Stage, task string, items int) error {
	bot := s.Client(0)
	bot.User, bot.Role = "bot", "agent"
	for left := items; left > 0; {
		r, err := bot.GetWork(ctx, task, client.Click{Count: 500, Lease: assign.Duration(time.Minute)}, client.Wait(time.Minute))
		if err != nil {
			return fmt.Errorf("take items: %w", err)
		}
		if len(r.Work) == 0 {
			return fmt.Errorf("check: nothing is handed out, and %d items are left", left)
		}
		all := make([]assign.Disposal, len(r.Work))
		for i, w := range r.Work {
			all[i] = assign.Disposal{ID: w.ID, Disposition: assign.Disposition{Outcome: "complete"}}
		}
		results, err := bot.DisposeMany(ctx, all)
		if err != nil {
			return fmt.Errorf("complete items: %w", err)
		}
		for _, one := range results {
			if err := client.RefusalOf(one); err != nil {
				return fmt.Errorf("complete items: %w", err)
			}
		}
		left -= len(all)
	}
	return nil
}

// workByAgent lets an agent work off the items. It ends the agent when it has handled all of them and drained.
func workByAgent(ctx context.Context, s *stage.Stage, task string, items int) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var handled atomic.Int64
	var seen sync.Map
	var twice atomic.Int64
	a := &agent.Agent{URL: s.Client(0).URL, User: "bot", Task: task, Concurrency: 200, Handler: agent.HandlerFunc(func(_ context.Context, w assign.Work) error {
		if _, known := seen.LoadOrStore(w.Item, true); known {
			twice.Add(1)
		}
		if handled.Add(1) == int64(items) {
			end()
		}
		return nil
	})}
	if err := a.Run(ctx); err != nil {
		return fmt.Errorf("run an agent: %w", err)
	}
	if n := twice.Load(); n > 0 {
		return fmt.Errorf("check: %d items were worked twice", n)
	}
	return nil
}

// workByLines lets a program that stays work off the items.
func workByLines(ctx context.Context, s *stage.Stage, task string, _ int) error {
	answers := `s/.*"id":"\([0-9]*\)".*/{"id":"\1","outcome":"complete"}/`
	run := exec.CommandContext(ctx, s.Binary, "agent", task, "--lines", "--once", "--concurrency", "200", "--url", s.Client(0).URL, "--user", "bot", "--", "sed", "-u", answers)
	if out, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("run getwork agent --lines: %w: %s", err, out)
	}
	return nil
}
