package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
)

// The history of a task that has been in use for two months: answered requests and completed work, of the items that
// are on the shelf now. As everywhere here, a request has three items.
const fillHistory = `
with asked as (
  insert into getwork.work_requested (task_id, user_name, wanted, requested, assigned, state, created_at, completed_at)
  select t.task_id, 'former ' || g % 2000, 3, 3, 3, 'assigned', w.at, w.at
  from generate_series($2::bigint, $3::bigint - 1) g
  cross join lateral (select clock_timestamp() - interval '60 days' * (1 - g::float8 / $4::bigint) as at) w
  join getwork.task_state t on t.name = $1
  returning id, task_id, user_name, completed_at
), numbered as (
  select *, $2::bigint + row_number() over () - 1 as n from asked
)
insert into getwork.work (task_id, item, user_name, request_id, details, assigned_at, state, closed_at, closed_by, closed_xid)
select a.task_id, (1 + (a.n * 3 + s) % $5::bigint)::text, a.user_name, a.id, '{"customer": "customer 1", "amount": 1}', a.completed_at,
  'completed', a.completed_at + interval '10 minutes', a.user_name, pg_current_xact_id()
from numbered a cross join generate_series(0, 2) s`

const (
	historyTask = "past"
	chunk       = 50_000 // how many requests one statement fills in
	rowBytes    = 900    // the disk space of a row of work, with its indexes, its part of a request, and some of the log
)

func historySizes(e *stage.Env) (few, many int) {
	return stage.Sized(e, 10_000, 100_000), stage.Sized(e, 300_000, 10_000_000)
}

func historyFigures(e *stage.Env) []*bench.Figure {
	few, many := historySizes(e)
	with, than := " with "+bench.Thousands(many)+" rows of work history, 64 users", "with "+bench.Thousands(few)
	return []*bench.Figure{
		{Key: "history_cpu", Name: "CPU of a click" + with, Unit: "µs", Goal: bench.AtMost(1.2), Limit: &bench.Figure{Key: "limit_history_cpu", Name: than, Unit: "µs"}},
		{Key: "history_clicks", Name: "Clicks" + with, Unit: "clicks/s", Limit: &bench.Figure{Key: "limit_history_clicks", Name: than, Unit: "clicks/s"}},
	}
}

// history measures what a click costs with a long history, and with a short one.
func history(ctx context.Context, r *bench.Rounds) error {
	few, many := historySizes(r.Env)
	room, err := historyRoom(ctx, r.Env)
	if err != nil {
		return err
	}
	if room < many {
		r.Figure("history_cpu").Note = fmt.Sprintf("only %s rows: there is no room for more, or the server's disk is not visible from here", bench.Thousands(room))
		many = room
	}
	return onPast(ctx, r.Env, few, historyItems(r.Env), func(short *stage.Stage) error {
		return onPast(ctx, r.Env, many, historyItems(r.Env), func(long *stage.Stage) error {
			parts := []struct {
				*stage.Stage
				prefix string
			}{{long, "history_"}, {short, "limit_history_"}}
			for range r.Each() {
				for _, p := range parts {
					c, err := clickAfter(ctx, p.Stage, stage.Sized(r.Env, 3*time.Second, 5*time.Second))
					if err != nil {
						return err
					}
					r.Add(p.prefix+"clicks", c.Rate)
					if cpu := c.Database + c.Nodes; cpu > 0 {
						r.Add(p.prefix+"cpu", cpu)
					}
				}
				slices.Reverse(parts) // so that being later does not always count against the same one
			}
			return nil
		})
	})
}

// historyItems is how many items all clicks of all rounds need.
func historyItems(e *stage.Env) int { return stage.Sized(e, 400_000, 1_500_000) }

// historyRoom returns how many rows there is room for, or a million if the disk is not visible.
func historyRoom(ctx context.Context, e *stage.Env) (int, error) {
	const cautious = 1_000_000
	conn, err := e.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	var dir *string // null for a login that may not see it
	if err := conn.QueryRow(ctx, `select (select setting from pg_settings where name = 'data_directory')`).Scan(&dir); err != nil {
		return 0, fmt.Errorf("read where the data is: %w", err)
	}
	if dir == nil || e.ServerPID == 0 {
		return cautious, nil
	}
	free, err := freeBytes(*dir)
	if err != nil {
		return cautious, nil
	}
	return int(free / 2 / rowBytes), nil
}

// onPast calls do on a getwork whose task has a history and a shelf.
func onPast(ctx context.Context, e *stage.Env, rows, items int, do func(s *stage.Stage) error) error {
	return e.On(ctx, 1, func(s *stage.Stage) error {
		err := s.MakeItems(ctx, items)
		if err == nil {
			err = s.Task(ctx, historyTask, stage.ItemsQuery, min(items, 1_000_000), stage.UntilEnd)
		}
		requests := rows / stage.WantedEach
		for from := 0; err == nil && from < requests; from += chunk {
			if from%(10*chunk) == 0 {
				e.Logf("filling in a history of %s rows: %d %%", bench.Thousands(rows), 100*from/requests)
			}
			err = s.Exec(ctx, "fill in a history", []string{fillHistory}, historyTask, from, min(from+chunk, requests), requests, items)
		}
		if err == nil {
			err = s.Exec(ctx, "vacuum a history", []string{`vacuum analyze getwork.work`, `vacuum analyze getwork.work_requested`})
		}
		if err == nil {
			err = s.FirstClick(ctx, historyTask)
		}
		if err != nil {
			return err
		}
		return do(s)
	})
}

// clickAfter returns what clicks cost on a task with a history.
func clickAfter(ctx context.Context, s *stage.Stage, window time.Duration) (stage.Cost, error) {
	out, err := s.Measure(ctx, stage.Load{Task: historyTask, Users: 64}, window, nil)
	if err != nil {
		return stage.Cost{}, err
	}
	return out.Cost(), s.Check(ctx, historyTask)
}
