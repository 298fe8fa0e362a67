package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A statement's query_start is set anew when it is parsed, bound and executed; once it sleeps it stays.
const sleepers = executions + ` and wait_event = 'PgSleep'`

// sample looks at the server all along for ranking queries. The returned function ends that, and tells how many
// executions were seen, and how many at most at the same time.
func (s *site) sample() (stop func() (executions, atOnce int)) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	seen, most := map[string]bool{}, 0
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
			now, failed := texts(conn, executions)
			asleep, failedToo := texts(conn, sleepers)
			if failure = errors.Join(failed, failedToo); failure != nil {
				return
			}
			looks++
			most = max(most, len(now))
			for _, execution := range asleep {
				seen[execution] = true
			}
		}
	})
	end := sync.OnceFunc(func() {
		cancel()
		sampling.Wait()
	})
	s.t.Cleanup(end)
	return func() (int, int) {
		end()
		if failure != nil {
			s.t.Errorf("look at the server's activity: %v", failure)
		}
		s.t.Logf("looked %d times: %d executions, at most %d at once", looks, len(seen), most)
		return len(seen), most
	}
}

func texts(conn *pgx.Conn, sql string) ([]string, error) {
	rows, err := conn.Query(context.Background(), sql, marker)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
