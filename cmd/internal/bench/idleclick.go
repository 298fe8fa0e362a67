package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"getwork/cmd/internal/bench/stage"
)

func idleClickFigures(*stage.Env) []*Figure {
	commits50 := &Figure{Key: "limit_two_commits_p50", Name: "its two commits alone, by pgx, p50", Unit: "ms"}
	commits99 := &Figure{Key: "limit_two_commits_p99", Name: "its two commits alone, by pgx, p99", Unit: "ms"}
	return []*Figure{
		{Key: "idle_click_p50", Name: "One click on an idle system, POST to 201, p50", Unit: "ms", Limit: commits50, Goal: AtMost(1.1)},
		{Key: "idle_click_p99", Name: "One click on an idle system, POST to 201, p99", Unit: "ms", Limit: commits99, Goal: AtMost(1.5)},
		{Key: "bare_post_p50", Name: "a POST that is answered 404, p50", Unit: "ms"},
	}
}

// Breath is the pause between two calls on an otherwise idle system.
const Breath = 5 * time.Millisecond

// idleClick measures single clicks, and next to them the cost of their commits and their HTTP alone.
func idleClick(ctx context.Context, r *Rounds) error {
	for range r.Each() {
		if err := r.addIdleClicks(ctx, "", stage.Sized(r.Env, 200, 500)); err != nil {
			return err
		}
	}
	return nil
}

// addIdleClicks adds the values of n clicks to the figures whose keys begin with a prefix.
func (r *Rounds) addIdleClicks(ctx context.Context, prefix string, n int) error {
	times, err := singleClicks(ctx, r.Env, n)
	if err != nil {
		return err
	}
	r.Add(prefix+"idle_click_p50", Quantile(times[0], 0.5))
	r.Add(prefix+"idle_click_p99", Quantile(times[0], 0.99))
	r.Add(prefix+"limit_two_commits_p50", Quantile(times[1], 0.5))
	r.Add(prefix+"limit_two_commits_p99", Quantile(times[1], 0.99))
	r.Add(prefix+"bare_post_p50", Quantile(times[2], 0.5))
	return nil
}

// singleClicks returns the times, in ms, of clicks, bare commits and bare calls. It takes them in turn, so that a
// disturbance affects all three.
func singleClicks(ctx context.Context, e *stage.Env, n int) (times [3][]float64, err error) {
	const task, items = "idle", 20_000
	err = e.On(ctx, 1, func(s *stage.Stage) error {
		if err := s.Shelf(ctx, task, items); err != nil {
			return err
		}
		err := onBare(ctx, e, items, func(b *bare) error {
			if err := b.reset(ctx, 1); err != nil {
				return err
			}
			u, err := s.User(ctx, 0, task, "somebody", stage.WantedEach)
			if err != nil {
				return err
			}
			defer u.Close()
			nothing := u.Request("POST", "/api/v1/nothing", "{}")
			calls := [3]func() error{
				func() error { _, err := u.Click(); return err },
				func() error { return b.write(ctx, b.Conn, 0, 1, true) },
				func() error {
					status, err := u.Do(nothing)
					if err == nil && status != http.StatusNotFound {
						err = fmt.Errorf("the bare call is answered %d", status)
					}
					return err
				},
			}
			for i := range n + n/10 {
				for kind, call := range calls {
					began := time.Now()
					if err := call(); err != nil {
						return err
					}
					if i >= n/10 { // earlier clicks make plans and connections
						times[kind] = append(times[kind], stage.Millis(time.Since(began)))
					}
					stage.Sleep(ctx, Breath)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return s.Check(ctx, task)
	})
	return times, err
}
