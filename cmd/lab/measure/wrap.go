package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
)

const (
	makePayments = `
create table getwork.bench_payment (loan bigint not null, customer text not null, amount numeric not null)`

	fillPayments = `
insert into getwork.bench_payment
select 1 + g % ($1::bigint / 10), 'customer ' || g % 5000, (g % 100000) / 100.0
from generate_series(1, $1::bigint) g`

	// Scores each loan by its payments. The score has no meaning except work for the processor. The condition uses the
	// score, so that no loan is left out before its score was computed.
	rankPayments = `
select loan as item, max(customer) as customer, sum(amount) as amount, sum(hashtextextended(md5(md5(md5(md5(md5(customer || amount))))), loan)) as score
from getwork.bench_payment
group by loan
having sum(hashtextextended(md5(md5(md5(md5(md5(customer || amount))))), loan)) %% %d = 0
order by score desc, loan`
)

// wrapSizes are, by key of the figure, the number of loans of which one is in the result.
var wrapSizes = []struct {
	key   string
	every int
}{{"wrap", 100}, {"wrap_many", 1}}

func payments(e *stage.Env) int { return stage.Sized(e, 200_000, 1_000_000) }

func wrapFigures(e *stage.Env) []*bench.Figure {
	var all []*bench.Figure
	for _, w := range wrapSizes {
		all = append(all, &bench.Figure{Key: w.key, Name: fmt.Sprintf("A run of a query that computes, and returns about %s rows", bench.Thousands(payments(e)/10/w.every)), Unit: "ms",
			Limit: &bench.Figure{Key: "limit_" + w.key, Name: "the query alone, by pgx", Unit: "ms"}})
	}
	all[0].Goal, all[1].Goal = bench.AtMost(1.05), bench.AtMost(1.15)
	return all
}

// wrap measures what getwork adds to a heavy query: leaving out blocked items, ranking, keeping the shelf. Each value
// is the median of some runs, and of as many bare executions, taken in turn.
func wrap(ctx context.Context, r *bench.Rounds) error {
	return r.On(ctx, 1, func(s *stage.Stage) error {
		if err := addPayments(ctx, s); err != nil {
			return err
		}
		for round := range r.Each() {
			for _, w := range wrapSizes {
				query := fmt.Sprintf(rankPayments, w.every)
				var runs, bare []float64
				for i := range stage.Sized(r.Env, 1, 3) {
					task := fmt.Sprintf("every-%d-%d-%d", w.every, round, i)
					run, err := firstRun(ctx, s, task, query, 1_000_000, stage.UntilEnd)
					if err != nil {
						return err
					}
					alone, err := readAll(ctx, s, query)
					if err != nil {
						return err
					}
					runs, bare = append(runs, run), append(bare, alone)
				}
				r.Add(w.key, bench.Quantile(runs, 0.5))
				r.Add("limit_"+w.key, bench.Quantile(bare, 0.5))
			}
		}
		return nil
	})
}

// addPayments creates the table that rankPayments reads.
func addPayments(ctx context.Context, s *stage.Stage) error {
	if err := s.Exec(ctx, "make payments", []string{makePayments, fillPayments}, payments(s.Env)); err != nil {
		return err
	}
	return s.MakeReadable(ctx, "bench_payment")
}

// firstRun creates a task, has its query run, and returns how long the run took in ms.
func firstRun(ctx context.Context, s *stage.Stage, task, query string, candidates int, fresh time.Duration) (float64, error) {
	if err := s.Fill(ctx, task, query, candidates, fresh); err != nil {
		return 0, err
	}
	runs, err := s.Runs(ctx, task)
	if err != nil {
		return 0, err
	}
	if len(runs) == 0 || runs[0].Finished == nil {
		return 0, fmt.Errorf("the run of %s is not in its history", task)
	}
	return stage.Millis(runs[0].Finished.Sub(runs[0].Started)), nil
}

// readAll executes a query and reads all of its rows, and returns the time in ms.
func readAll(ctx context.Context, s *stage.Stage, query string) (float64, error) {
	began := time.Now()
	rows, err := s.Conn.Query(ctx, s.SQL(query), pgx.QueryExecModeExec)
	if err != nil {
		return 0, fmt.Errorf("run the query alone: %w", err)
	}
	for rows.Next() {
		rows.RawValues()
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("run the query alone: %w", err)
	}
	return stage.Millis(time.Since(began)), nil
}
