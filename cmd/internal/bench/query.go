package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
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

func payments(e *Env) int { return sized(e, 200_000, 1_000_000) }

func wrapFigures(e *Env) []*Figure {
	var all []*Figure
	for _, w := range wrapSizes {
		all = append(all, &Figure{Key: w.key, Name: fmt.Sprintf("A run of a query that computes, and returns about %s rows", thousands(payments(e)/10/w.every)), Unit: "ms",
			Limit: &Figure{Key: "limit_" + w.key, Name: "the query alone, by pgx", Unit: "ms"}})
	}
	all[0].Goal, all[1].Goal = atMost(1.05), atMost(1.15)
	return all
}

// wrap measures what getwork adds to a heavy query: leaving out blocked items, ranking, keeping the shelf. Each value
// is the median of some runs, and of as many bare executions, taken in turn.
func wrap(ctx context.Context, r *rounds) error {
	return r.on(ctx, 1, func(s *stage) error {
		if err := s.makePayments(ctx); err != nil {
			return err
		}
		for round := range r.each() {
			for _, w := range wrapSizes {
				query := fmt.Sprintf(rankPayments, w.every)
				var runs, bare []float64
				for i := range sized(r.Env, 1, 3) {
					task := fmt.Sprintf("every-%d-%d-%d", w.every, round, i)
					run, err := s.firstRun(ctx, task, query, 1_000_000, untilEnd)
					if err != nil {
						return err
					}
					alone, err := s.readAll(ctx, query)
					if err != nil {
						return err
					}
					runs, bare = append(runs, run), append(bare, alone)
				}
				r.add(w.key, quantile(runs, 0.5))
				r.add("limit_"+w.key, quantile(bare, 0.5))
			}
		}
		return nil
	})
}

// makePayments creates the table that rankPayments reads.
func (s *stage) makePayments(ctx context.Context) error {
	if err := s.exec(ctx, "make payments", []string{makePayments, fillPayments}, payments(s.Env)); err != nil {
		return err
	}
	if err := s.letQueriesRead(ctx, "bench_payment"); err != nil {
		return err
	}
	return s.exec(ctx, "make payments", []string{`vacuum analyze getwork.bench_payment`})
}

// firstRun creates a task, has its query run, and returns how long the run took in ms.
func (s *stage) firstRun(ctx context.Context, task, query string, candidates int, fresh time.Duration) (float64, error) {
	if err := s.fill(ctx, task, query, candidates, fresh); err != nil {
		return 0, err
	}
	runs, err := s.runs(ctx, task)
	if err != nil {
		return 0, err
	}
	if len(runs) == 0 || runs[0].Finished == nil {
		return 0, fmt.Errorf("the run of %s is not in its history", task)
	}
	return millis(runs[0].Finished.Sub(runs[0].Started)), nil
}

// readAll executes a query and reads all of its rows, and returns the time in ms.
func (s *stage) readAll(ctx context.Context, query string) (float64, error) {
	began := time.Now()
	rows, err := s.conn.Query(ctx, s.sql(query), pgx.QueryExecModeExec)
	if err != nil {
		return 0, fmt.Errorf("run the query alone: %w", err)
	}
	for rows.Next() {
		rows.RawValues()
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("run the query alone: %w", err)
	}
	return millis(time.Since(began)), nil
}

// These queries compute or sleep once, and then list the items.
const (
	sleepingQuery = `
with s as materialized (select pg_sleep(%g))
select item, customer, amount from s, getwork.bench_item order by item`

	computingQuery = `
with s as materialized (select sum(hashtextextended(md5(a::text || b), 1)) from generate_series(1, %d) a, generate_series(1, 1000) b)
select item, customer, amount from s, getwork.bench_item order by item`
)

func busyFigures(*Env) []*Figure {
	var all []*Figure
	for _, kind := range []string{"sleep", "compute"} {
		key, name := "busy_"+kind, "One click from a fresh shelf while a query "+kind+"s, "
		all = append(all, &Figure{Key: key + "_p50", Name: name + "p50", Unit: "ms"},
			&Figure{Key: key + "_p99", Name: name + "p99", Unit: "ms", Limit: &Figure{Key: "limit_" + key, Name: "p99 while none runs", Unit: "ms"}})
	}
	all[1].Goal = atMost(2)
	return all
}

// busy measures clicks from a fresh shelf while the next run's query is under way.
func busy(ctx context.Context, r *rounds) error {
	lasts := sized(r.Env, 2*time.Second, 5*time.Second)
	kinds := []*busyKind{
		{rounds: r, key: "busy_sleep", query: func(context.Context, *stage) (string, error) {
			return fmt.Sprintf(sleepingQuery, lasts.Seconds()), nil
		}},
		{rounds: r, key: "busy_compute", query: func(ctx context.Context, s *stage) (string, error) { // for about as long as it sleeps
			const probe = 300
			took, err := s.readAll(ctx, fmt.Sprintf(computingQuery, probe))
			return fmt.Sprintf(computingQuery, max(1, int(math.Round(probe*millis(lasts)/took)))), err
		}},
	}
	for range r.each() {
		for _, k := range kinds {
			if err := r.on(ctx, 1, func(s *stage) error { return k.take(ctx, s, lasts) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// busyKind holds the clicks while one kind of query runs.
type busyKind struct {
	*rounds
	key          string
	query        func(ctx context.Context, s *stage) (string, error)
	waited, none int
}

func (k *busyKind) take(ctx context.Context, s *stage, lasts time.Duration) error {
	const task, items = "busy", 50_000
	if err := s.makeItems(ctx, items); err != nil {
		return err
	}
	query, err := k.query(ctx, s)
	if err != nil {
		return err
	}
	fresh := 3 * lasts
	if err := s.fill(ctx, task, query, items, fresh); err != nil {
		return err
	}
	// As long as a shelf is fresh and a query runs, so that one whole run falls into it.
	over, stop := context.WithTimeout(ctx, fresh+lasts)
	defer stop()
	out, err := s.run(ctx, over, load{task: task, users: 1, pause: breath})
	if err != nil {
		return err
	}
	runs, err := s.runs(ctx, task)
	if err != nil {
		return err
	}
	k.count(out, runs)
	return s.check(ctx, task)
}

// count separates the clicks during a run from those while none was under way, nor shortly before or after.
func (k *busyKind) count(out *outcome, runs []run) {
	const apart = 500 * time.Millisecond
	var during, idle []float64
	for _, c := range out.clicks[min(len(out.clicks), 50):] { // the first ones make plans
		switch began := c.at.Add(-c.took); {
		case underWay(runs, began, c.at):
			during = append(during, millis(c.took))
		case !underWay(runs, began.Add(-apart), c.at.Add(apart)):
			idle = append(idle, millis(c.took))
		}
	}
	if k.waited += out.waited; k.waited > 0 {
		k.figure(k.key + "_p99").Note = fmt.Sprintf("%d clicks found no fresh shelf, and waited for the query", k.waited)
	}
	if len(during) == 0 || len(idle) == 0 {
		k.none++
		k.log("no query ran while clicks were made")
		k.figure(k.key + "_p50").Note = fmt.Sprintf("in %d rounds no query ran while clicks were made; they are left out", k.none)
		return
	}
	k.add(k.key+"_p50", quantile(during, 0.5))
	k.add(k.key+"_p99", quantile(during, 0.99))
	k.add("limit_"+k.key, quantile(idle, 0.99))
}
