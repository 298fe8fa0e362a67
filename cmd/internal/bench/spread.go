package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// spread is a closed loop of users, in turn on each of a stage's nodes.
type spread struct {
	task  string
	users int
	most  int // clicks altogether, so that there are items for all
}

// clicked is what came of it.
type clicked struct {
	clicks int
	took   time.Duration
	items  []int64 // all that were handed out
}

func (c clicked) rate() float64 { return float64(c.clicks) / c.took.Seconds() }

// spread has the users click until the time is over, or there have been enough clicks.
func (s *stage) spread(ctx context.Context, l spread, lasts time.Duration) (c clicked, err error) {
	users := make([]*user, l.users)
	defer func() {
		for _, u := range users {
			if u != nil {
				u.close()
			}
		}
	}()
	for i := range users {
		if users[i], err = openUser(ctx, s.nodes.URL(i%len(s.nodes.each)), l.task, fmt.Sprintf("%s user %d", l.task, i), wantedEach); err != nil {
			return c, err
		}
	}
	var total atomic.Int64
	began := time.Now()
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for _, u := range users {
		g.Go(func() error {
			clicks := 0
			for time.Since(began) < lasts && ctx.Err() == nil && total.Add(1) <= int64(l.most) {
				if _, err := u.click(); err != nil {
					return err
				}
				clicks++
			}
			mu.Lock()
			defer mu.Unlock()
			c.clicks += clicks
			c.items = append(c.items, u.items...)
			return context.Cause(ctx)
		})
	}
	err = g.Wait()
	c.took = time.Since(began)
	return c, err
}
