package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// nap is how long a query takes, between least and most seconds. The time is slept, not computed, because the rest
// needs the machine.
type nap struct {
	least, most float64
	locked      bool // it does not depend on the database's clock
}

// sql returns an expression that takes that long. If the clock is set, pg_sleep would not do: set back by an hour, it
// sleeps an hour longer, and no time-out of PostgreSQL ends it earlier. Then the query waits for a lock that is
// released now and then, and so for up to that long.
func (n nap) sql() string {
	if n.locked {
		return fmt.Sprintf("pg_advisory_xact_lock_shared(%d)", n.lock())
	}
	return fmt.Sprintf("pg_sleep(%g + %g * random())", n.least, n.most-n.least)
}

// lock returns a lock id that only naps of the same length share.
func (n nap) lock() int64 { return 1<<40 | int64(n.least*1000)<<20 | int64(n.most*1000) }

// wake releases the locks that queries of these jobs wait for, again and again until ctx ends.
func (s *stage) wake(ctx context.Context, jobs []job) {
	var all sync.WaitGroup
	known := map[nap]bool{}
	for _, j := range jobs {
		if n := j.nap; n.locked && !known[n] {
			known[n] = true
			all.Go(func() {
				for ctx.Err() == nil {
					_ = s.wakeFrom(ctx, n) // the database can't be reached
					doze(ctx, rand.New(rand.NewPCG(s.o.Seed, drawsNap)), 100*time.Millisecond)
				}
			})
		}
	}
	all.Wait()
}

// wakeFrom does so until its connection breaks. It never waits for the lock: behind a transaction that holds the lock
// for long, because its node is frozen, all later queries would sleep. While it can't get the lock, no query sleeps.
func (s *stage) wakeFrom(ctx context.Context, n nap) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	rng := rand.New(rand.NewPCG(s.o.Seed, drawsNap))
	for {
		var locked bool
		if err := conn.QueryRow(ctx, `select pg_try_advisory_lock($1)`, n.lock()).Scan(&locked); err != nil {
			return err
		}
		pause := 5 * time.Millisecond
		if locked {
			pause = time.Duration((n.least + (n.most-n.least)*rng.Float64()) * float64(time.Second))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if !locked {
			continue
		}
		if _, err := conn.Exec(ctx, `select pg_advisory_unlock($1)`, n.lock()); err != nil {
			return err
		}
	}
}
