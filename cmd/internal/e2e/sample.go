package e2e

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A statement's query_start changes when it is parsed, bound and executed, and stays the same while it sleeps. The
// server reads a session's wait event a moment after the rest of its row, so one sighting asleep may combine two
// moments.
const sleepers = Executions + ` and wait_event = 'PgSleep'`

// Sample watches the server for ranking queries. The returned function ends that, and returns how many executions were
// seen, and how many at most at the same time.
func (s *Site) Sample() (stop func() (executions, atOnce int)) {
	s.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		cancel()
		s.T.Fatal(err)
	}
	seen, most := map[string]int{}, 0
	s.samples.Store(0)
	var looks int
	var failure error
	var sampling sync.WaitGroup
	sampling.Go(func() {
		defer conn.Close(context.Background())
		tick := time.NewTicker(15 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now, failed := texts(conn, Executions)
			asleep, failedToo := texts(conn, sleepers)
			if failure = errors.Join(failed, failedToo); failure != nil {
				return
			}
			looks++
			most = max(most, len(now))
			for _, execution := range asleep {
				if seen[execution]++; seen[execution] == 2 {
					s.samples.Add(1)
				}
			}
		}
	})
	end := sync.OnceFunc(func() {
		cancel()
		sampling.Wait()
	})
	s.T.Cleanup(end)
	return func() (int, int) {
		end()
		if failure != nil {
			s.T.Errorf("read the server's activity: %v", failure)
		}
		maps.DeleteFunc(seen, func(_ string, times int) bool { return times == 1 })
		s.T.Logf("%d samples: %d executions, at most %d at once", looks, len(seen), most)
		return len(seen), most
	}
}

// Sampled waits until Sample has seen that many executions, while the gate holds each.
func (s *Site) Sampled(executions int64) {
	s.T.Helper()
	Await(s.T, "the executions are seen", Soon, func() bool { return s.samples.Load() >= executions })
}

func texts(conn *pgx.Conn, sql string) ([]string, error) {
	rows, err := conn.Query(context.Background(), sql, Marker)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
