package torture

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/lab/torture/checker"
	"getwork/cmd/lab/torture/history"
)

// settle waits until no request waits any more, but not forever: requests that still wait then are found in the tables.
// It then waits a little longer, so that everybody hears of it.
func (s *stage) settle(ctx context.Context) error {
	bound := time.NewTimer(s.o.Settle)
	defer bound.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		n, err := s.pending(ctx)
		if err == nil && n == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-bound.C:
			if err != nil {
				return fmt.Errorf("read which requests wait: %w", err)
			}
			waiting = false
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	told := checker.ToldWithin(s.rec.History(history.Tables{}).Entries)
	wait(ctx, told+2*time.Second) // sockets that closed earlier would prove nothing of the last ends
	return ctx.Err()
}

func (s *stage) pending(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	const waiting = `
select count(*) from getwork.work_requested
where state = 'pending' and (linger_until is null or linger_until < clock_timestamp() + interval '1 minute')` // a later end means that the clock was set back
	err = conn.QueryRow(ctx, waiting).Scan(&n)
	return n, err
}

var rescuedLine = regexp.MustCompile(`(?m)^getwork_requests_rescued_total(?:\{[^}]*\})? (\S+)$`)

// rescued returns how many requests only the sweep has found, as the running nodes count. It returns false if they
// don't answer.
func (s *stage) rescued(ctx context.Context) (n int, known bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, m := range s.members {
		ask, err := http.NewRequestWithContext(ctx, http.MethodGet, m.node.URL+"/metrics", nil)
		if err != nil {
			return 0, false
		}
		answer, err := transport.RoundTrip(ask)
		if err != nil {
			return 0, false
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		found := rescuedLine.FindSubmatch(body)
		if err != nil || answer.StatusCode != http.StatusOK || found == nil {
			return 0, false
		}
		x, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return 0, false
		}
		n += int(x)
	}
	if n > 0 && !s.o.disturbed() {
		s.findings.add("rescued", "only the sweep found %d requests, although nothing was broken", n)
	}
	return n, true
}

// databaseNow returns the time of the database's clock.
func (s *stage) databaseNow(ctx context.Context) (now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err == nil {
		defer conn.Close(ctx)
		err = conn.QueryRow(ctx, `select clock_timestamp()`).Scan(&now)
	}
	if err != nil {
		err = fmt.Errorf("read the database's clock: %w", err)
	}
	return now, err
}

// drainAll ends all nodes as an administrator does.
func (s *stage) drainAll() {
	var all sync.WaitGroup
	for _, m := range s.members {
		all.Go(func() {
			m.process.Lock()
			defer m.process.Unlock()
			m.drain()
		})
	}
	all.Wait()
}

// read reads the tables when nobody writes any more.
func (s *stage) read(ctx context.Context) (h history.History, err error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return h, err
	}
	defer conn.Close(ctx)
	t, err := history.Read(ctx, conn, "getwork")
	if err != nil {
		return h, err
	}
	for _, r := range t.Requests {
		// A query that runs when the clock is set forward past its time-out is ended, and fails.
		byClock := s.clock != nil && r.Error != nil && strings.Contains(*r.Error, "SQLSTATE 57014")
		if r.State == "failed" && !byClock {
			s.findings.add("whose fault", "request %d of %s failed, and no query of a run does so by itself: %s", r.ID, r.User, *r.Error)
		}
	}
	return s.rec.History(t), nil
}
