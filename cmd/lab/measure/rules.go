package measure

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
	"getwork/ws/client"
)

// slowest is how long the slowest query of those takes for which everybody waits.
const slowest = 5 * time.Second

func rulesFigures(e *stage.Env) []*bench.Figure {
	plain := &bench.Figure{Key: "limit_rules_cpu", Name: "without limits and absences", Unit: "µs"}
	named := &bench.Figure{Key: "limit_next_cpu", Name: "of one task", Unit: "µs"}
	return []*bench.Figure{
		{Key: "rules_cpu", Name: "CPU of a click, 64 users, with limits in force and people away", Unit: "µs", Limit: plain, Goal: bench.AtMost(1.15)},
		{Key: "next_cpu", Name: "CPU of a click over all tasks that a fresh shelf answers, 64 users", Unit: "µs", Limit: named, Goal: bench.AtMost(1.3)},
		{Key: "next_waiting", Name: fmt.Sprintf("%s people click over ten tasks: the last answer after the slowest query, of %s", bench.Thousands(nextSize(e)), slowest),
			Unit: "ms", Goal: bench.AtMost(3000)},
	}
}

func nextSize(e *stage.Env) int { return stage.Sized(e, 100, 1000) }

// rules measures what limits, absences and clicks over all tasks cost.
func rules(ctx context.Context, r *bench.Rounds) error {
	plain := stage.FreshLoad{Users: 64, Names: 20_000, Nodes: 1, Items: stage.Sized(r.Env, 100_000, 300_000), Window: stage.Sized(r.Env, 2*time.Second, 8*time.Second)}
	ruled, next := plain, plain
	ruled.Ready, next.Next = setRules, true
	parts := []struct {
		load stage.FreshLoad
		keys []string
	}{{plain, []string{"limit_rules_cpu", "limit_next_cpu"}}, {ruled, []string{"rules_cpu"}}, {next, []string{"next_cpu"}}}
	for range r.Each() {
		for _, p := range parts {
			c, err := r.FreshClicks(ctx, p.load)
			if err != nil {
				return err
			}
			for _, key := range p.keys {
				r.Add(key, c.Database+c.Nodes)
			}
		}
		slices.Reverse(parts) // so that being later does not always count against the same one
		took, err := waitForNext(ctx, r.Env)
		if err != nil {
			return err
		}
		r.Add("next_waiting", stage.Millis(took-slowest))
	}
	return nil
}

// setRules gives everybody a limit that nobody reaches, and sends people away who don't click.
func setRules(ctx context.Context, s *stage.Stage) error {
	shown, err := s.Show(ctx, "bench", "manager")
	if err != nil {
		return err
	}
	err = s.Client(0).Do(ctx, http.MethodPut, "/api/v1/limits", map[string]any{"everybody": 200}, nil, append(stage.As(shown), client.Header("If-Match", "*"))...)
	if err != nil {
		return fmt.Errorf("set the limits: %w", err)
	}
	for n := range 50 {
		if err := s.Call(ctx, 0, "bench", "manager", "/api/v1/absences", map[string]any{"user": fmt.Sprint("absent ", n)}); err != nil {
			return fmt.Errorf("send people away: %w", err)
		}
	}
	return nil
}

// waitForNext returns how long it takes until everybody is answered who clicks over ten tasks whose shelves are empty, the first click included.
func waitForNext(ctx context.Context, e *stage.Env) (took time.Duration, err error) {
	people := nextSize(e)
	err = e.On(ctx, 2, func(s *stage.Stage) error {
		if err := s.MakeItems(ctx, people*stage.WantedEach+1); err != nil {
			return err
		}
		for n := range 10 {
			query := fmt.Sprintf("select item, customer, amount from getwork.bench_item, pg_sleep(%g) order by item", slowest.Seconds()*float64(10-n)/10)
			if err := s.Task(ctx, fmt.Sprint("next-", n), query, people*stage.WantedEach, stage.UntilEnd); err != nil {
				return err
			}
		}
		began := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		for n := range people {
			g.Go(func() error {
				u, err := s.Next(ctx, n%2, "next", fmt.Sprint("user ", n), stage.WantedEach)
				if err != nil {
					return err
				}
				defer u.Close()
				_, err = u.Click()
				return err
			})
		}
		err := g.Wait()
		took = time.Since(began)
		return err
	})
	return took, err
}
