package measure

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/assign"
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

// rules measures what limits, absences and clicks over all tasks cost. What is compared takes turns on one getwork, there and back:
// two databases differ by more than the rules cost.
func rules(ctx context.Context, r *bench.Rounds) error {
	load := stage.FreshLoad{Users: 64, Names: 20_000, Nodes: 1, Items: stage.Sized(r.Env, 200_000, 600_000), Window: stage.Sized(r.Env, time.Second, 4*time.Second)}
	plain, ruled, next := stage.Turn{Ready: setRules(0)}, stage.Turn{Ready: setRules(50)}, stage.Turn{Ready: setRules(0), Next: true}
	keys := [][]string{{"limit_rules_cpu", "limit_next_cpu"}, {"rules_cpu"}, {"next_cpu"}}
	for range r.Each() {
		costs, err := r.FreshTurns(ctx, load, plain, ruled, next, next, ruled, plain)
		if err != nil {
			return err
		}
		for i := range keys {
			there, back := costs[i], costs[len(costs)-1-i]
			for _, key := range keys[i] {
				r.Add(key, (there.Database+there.Nodes+back.Database+back.Nodes)/2)
			}
		}
		took, err := waitForNext(ctx, r.Env)
		if err != nil {
			return err
		}
		r.Add("next_waiting", stage.Millis(took-slowest))
	}
	return nil
}

// setRules sends so many people away who don't click, and gives everybody a limit that nobody reaches; 0: without either.
func setRules(away int) func(ctx context.Context, s *stage.Stage) error {
	return func(ctx context.Context, s *stage.Stage) error {
		shown, err := s.Show(ctx, "bench", "manager")
		if err != nil {
			return err
		}
		c, as := s.Client(0), stage.As(shown)
		var before struct{ Absences []assign.Absence }
		if err := c.Do(ctx, http.MethodGet, "/api/v1/absences?limit=100", nil, &before, as...); err != nil {
			return fmt.Errorf("see who is away: %w", err)
		}
		for _, a := range before.Absences {
			if err := c.Do(ctx, http.MethodDelete, fmt.Sprint("/api/v1/absences/", a.ID), nil, nil, as...); err != nil {
				return fmt.Errorf("bring people back: %w", err)
			}
		}
		limits := map[string]any{}
		if away > 0 {
			limits["everybody"] = 200
		}
		if err := c.Do(ctx, http.MethodPut, "/api/v1/limits", limits, nil, append(as, client.Header("If-Match", "*"))...); err != nil {
			return fmt.Errorf("set the limits: %w", err)
		}
		for n := range away {
			if err := s.Call(ctx, 0, "bench", "manager", "/api/v1/absences", map[string]any{"user": fmt.Sprint("absent ", n)}); err != nil {
				return fmt.Errorf("send people away: %w", err)
			}
		}
		return nil
	}
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
