package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

func idleClickFigures(*Env) []*Figure {
	commits50 := &Figure{Key: "limit_two_commits_p50", Name: "its two commits alone, by pgx, p50", Unit: "ms"}
	commits99 := &Figure{Key: "limit_two_commits_p99", Name: "its two commits alone, by pgx, p99", Unit: "ms"}
	return []*Figure{
		{Key: "idle_click_p50", Name: "One click on an idle system, POST to 201, p50", Unit: "ms", Limit: commits50, Goal: atMost(1.1)},
		{Key: "idle_click_p99", Name: "One click on an idle system, POST to 201, p99", Unit: "ms", Limit: commits99, Goal: atMost(1.5)},
		{Key: "bare_post_p50", Name: "a POST that is answered 404, p50", Unit: "ms"},
	}
}

// breath is the pause between two calls on an otherwise idle system.
const breath = 5 * time.Millisecond

// idleClick measures single clicks, and next to them the cost of their commits and their HTTP alone.
func idleClick(ctx context.Context, r *rounds) error {
	for range r.each() {
		if err := r.addIdleClicks(ctx, "", sized(r.Env, 200, 500)); err != nil {
			return err
		}
	}
	return nil
}

// addIdleClicks adds the values of n clicks to the figures whose keys begin with a prefix.
func (r *rounds) addIdleClicks(ctx context.Context, prefix string, n int) error {
	times, err := r.singleClicks(ctx, n)
	if err != nil {
		return err
	}
	r.add(prefix+"idle_click_p50", quantile(times[0], 0.5))
	r.add(prefix+"idle_click_p99", quantile(times[0], 0.99))
	r.add(prefix+"limit_two_commits_p50", quantile(times[1], 0.5))
	r.add(prefix+"limit_two_commits_p99", quantile(times[1], 0.99))
	r.add(prefix+"bare_post_p50", quantile(times[2], 0.5))
	return nil
}

// singleClicks returns the times, in ms, of clicks, bare commits and bare calls. It takes them in turn, so that a
// disturbance affects all three.
func (e *Env) singleClicks(ctx context.Context, n int) (times [3][]float64, err error) {
	const task, items = "idle", 20_000
	err = e.on(ctx, 1, func(s *stage) error {
		if err := s.shelf(ctx, task, items); err != nil {
			return err
		}
		err := e.onBare(ctx, items, func(b *bare) error {
			if err := b.reset(ctx, 1); err != nil {
				return err
			}
			u, err := s.user(ctx, 0, task, "somebody", wantedEach)
			if err != nil {
				return err
			}
			defer u.close()
			nothing := u.request("POST", "/api/v1/nothing", "{}")
			calls := [3]func() error{
				func() error { _, err := u.click(); return err },
				func() error { return b.write(ctx, b.conn, 0, 1, true) },
				func() error {
					status, err := u.do(nothing)
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
						times[kind] = append(times[kind], millis(time.Since(began)))
					}
					sleep(ctx, breath)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return s.check(ctx, task)
	})
	return times, err
}
