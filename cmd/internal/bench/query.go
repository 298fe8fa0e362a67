package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

const makePayments = `
create table getwork.bench_payment (loan bigint not null, customer text not null, amount numeric not null)`

const fillPayments = `
insert into getwork.bench_payment
select 1 + g % ($1::bigint / 10), 'customer ' || g % 5000, (g % 100000) / 100.0
from generate_series(1, $1::bigint) g`

// rankPayments scores each loan by its payments. The score means nothing: it is work for the processor. The condition
// is one on the score, so that nothing is left out before it was computed.
const rankPayments = `
select loan as item, max(customer) as customer, sum(amount) as amount, sum(hashtextextended(md5(md5(md5(md5(md5(customer || amount))))), loan)) as score
from getwork.bench_payment
group by loan
having sum(hashtextextended(md5(md5(md5(md5(md5(customer || amount))))), loan)) %% %d = 0
order by score desc, loan`

// wrapping is one of the sizes of a result that the wrapping is measured with.
type wrapping struct {
	every int // one of so many loans is in the result
	bare  Figure
	run   Figure
}

// wrap measures what getwork's wrapping adds to a heavy query: leaving out what is held, ranking, keeping the shelf.
func wrap(ctx context.Context, e *Env) ([]Figure, error) {
	payments, repeats := 1_000_000, 3
	if e.Quick {
		payments, repeats = 200_000, 1
	}
	some := newWrapping("wrap", payments, 100)
	some.run.Goal = atMost(1.05)
	many := newWrapping("wrap_many", payments, 1)
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.makePayments(ctx, payments); err != nil {
		return nil, err
	}
	for round := range e.Rounds {
		e.log("round %d of %d: a heavy query, wrapped and bare", round+1, e.Rounds)
		for _, w := range []*wrapping{some, many} {
			if err := w.take(ctx, s, round, repeats); err != nil {
				return nil, err
			}
		}
	}
	some.run.Limit, many.run.Limit = &some.bare, &many.bare
	return []Figure{some.run, many.run}, nil
}

func (s *stage) makePayments(ctx context.Context, n int) error {
	err := s.exec(ctx, makePayments)
	if err == nil {
		err = s.exec(ctx, fillPayments, n)
	}
	if err == nil {
		err = s.exec(ctx, `vacuum analyze getwork.bench_payment`)
	}
	if err != nil {
		return fmt.Errorf("make %d payments: %w", n, err)
	}
	return nil
}

func newWrapping(key string, payments, every int) *wrapping {
	return &wrapping{
		every: every,
		run:   Figure{Key: key, Name: fmt.Sprintf("A run of a query that computes, and returns about %s rows", thousands(payments/10/every)), Unit: "ms"},
		bare:  Figure{Key: "limit_" + key, Name: "the query alone, by pgx", Unit: "ms"},
	}
}

// take is one round: the median of some runs, and of as many bare executions, in turn.
func (w *wrapping) take(ctx context.Context, s *stage, round, repeats int) error {
	query := fmt.Sprintf(rankPayments, w.every)
	var run, bare Figure
	for i := range repeats {
		took, err := s.runOnce(ctx, fmt.Sprintf("every-%d-%d-%d", w.every, round, i), query)
		if err != nil {
			return err
		}
		run.Values = append(run.Values, took)
		if took, err = s.readAll(ctx, query); err != nil {
			return err
		}
		bare.Values = append(bare.Values, took)
	}
	w.run.Values, w.bare.Values = append(w.run.Values, run.Median()), append(w.bare.Values, bare.Median())
	return nil
}

// runOnce has a new task's query run for one click, and returns how long the run took, with its round, in ms.
func (s *stage) runOnce(ctx context.Context, task, query string) (float64, error) {
	if err := s.task(ctx, task, query, map[string]any{"max_candidates": 1_000_000, "fresh_for": "10m"}); err != nil {
		return 0, err
	}
	if _, err := s.fillShelf(ctx, task); err != nil {
		return 0, err
	}
	runs, err := s.runs(ctx, task)
	if err != nil {
		return 0, err
	}
	if len(runs) == 0 || runs[0].FinishedAt == nil {
		return 0, fmt.Errorf("the run of %s is not in its history", task)
	}
	return millis(runs[0].FinishedAt.Sub(runs[0].StartedAt)), nil
}

// readAll executes a query and reads all of its rows, and returns how long that took, in ms.
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

// The whole of these is computed, or slept through, once, and then the items are listed.
const (
	sleepingQuery = `
with s as materialized (select pg_sleep(%g))
select item, customer, amount from s, getwork.bench_item order by item`

	computingQuery = `
with s as materialized (select sum(hashtextextended(md5(a::text || b), 1)) from generate_series(1, %d) a, generate_series(1, 1000) b)
select item, customer, amount from s, getwork.bench_item order by item`
)

// busyPart is how clicks fare while one kind of query runs.
type busyPart struct {
	query          func(ctx context.Context, s *stage, lasts time.Duration) (string, error)
	p50, p99, idle Figure
	waited, none   int
}

// busy measures clicks from a fresh shelf while the next run's query is under way.
func busy(ctx context.Context, e *Env) ([]Figure, error) {
	sleeps := newBusyPart("busy_sleep", "sleeps", func(_ context.Context, _ *stage, lasts time.Duration) (string, error) {
		return fmt.Sprintf(sleepingQuery, lasts.Seconds()), nil
	})
	computes := newBusyPart("busy_compute", "computes", calibrated)
	for round := range e.Rounds {
		for _, part := range []*busyPart{sleeps, computes} {
			e.log("round %d of %d: clicks while a query runs (%s)", round+1, e.Rounds, part.p50.Key)
			if err := part.take(ctx, e); err != nil {
				return nil, err
			}
		}
	}
	if len(sleeps.p99.Values) > 0 {
		sleeps.p99.Goal = atMost(2)
	}
	return append(sleeps.all(), computes.all()...), nil
}

func newBusyPart(key, does string, query func(context.Context, *stage, time.Duration) (string, error)) *busyPart {
	return &busyPart{
		query: query,
		p50:   Figure{Key: key + "_p50", Name: "One click from a fresh shelf while a query " + does + ", p50", Unit: "ms"},
		p99:   Figure{Key: key + "_p99", Name: "One click from a fresh shelf while a query " + does + ", p99", Unit: "ms"},
		idle:  Figure{Key: "limit_" + key, Name: "p99 while none runs", Unit: "ms"},
	}
}

// calibrated is a query that computes for about as long as it should.
func calibrated(ctx context.Context, s *stage, lasts time.Duration) (string, error) {
	const probe = 300
	took, err := s.readAll(ctx, fmt.Sprintf(computingQuery, probe))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(computingQuery, max(1, int(math.Round(probe*millis(lasts)/took)))), nil
}

func (p *busyPart) take(ctx context.Context, e *Env) error {
	lasts, fresh := 5*time.Second, 15*time.Second
	if e.Quick {
		lasts, fresh = 2*time.Second, 6*time.Second
	}
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.makeItems(ctx, 50_000); err != nil {
		return err
	}
	query, err := p.query(ctx, s, lasts)
	if err != nil {
		return err
	}
	if err := s.task(ctx, "busy", query, map[string]any{"max_candidates": 50_000, "fresh_for": fresh.String()}); err != nil {
		return err
	}
	first, err := s.fillShelf(ctx, "busy")
	if err != nil {
		return err
	}
	// As long as a shelf is fresh and a query runs: one whole run falls into it.
	l := load{url: s.nodes.URL(0), task: "busy", users: 1, count: 3, pause: breath}
	over, stop := context.WithTimeout(ctx, fresh+lasts)
	defer stop()
	out, err := l.run(ctx, over)
	if err != nil {
		return err
	}
	runs, err := s.runs(ctx, "busy")
	if err != nil {
		return err
	}
	p.add(out, runs)
	return s.check(ctx, "busy", append(out.items, first...))
}

// apart is how far from a run a click counts as one on an idle system.
const apart = 500 * time.Millisecond

// add parts the clicks into those while a run was under way, and those while none was.
func (p *busyPart) add(out *outcome, runs []ranking) {
	var during, idle []float64
	for _, c := range out.clicks[min(len(out.clicks), 50):] { // the first have plans to make
		at := out.began.Add(c.at)
		switch began := at.Add(-c.took); {
		case overlaps(runs, began, at):
			during = append(during, millis(c.took))
		case !overlaps(runs, began.Add(-apart), at.Add(apart)):
			idle = append(idle, millis(c.took))
		}
	}
	p.waited += out.waited
	if len(during) == 0 || len(idle) == 0 {
		p.none++
		return
	}
	p.p50.Values, p.p99.Values = append(p.p50.Values, percentile(during, 50)), append(p.p99.Values, percentile(during, 99))
	p.idle.Values = append(p.idle.Values, percentile(idle, 99))
}

// overlaps tells whether a run was under way at some time between two.
func overlaps(runs []ranking, from, to time.Time) bool {
	for _, r := range runs {
		if r.StartedAt.Before(to) && (r.FinishedAt == nil || r.FinishedAt.After(from)) {
			return true
		}
	}
	return false
}

func (p *busyPart) all() []Figure {
	if p.none > 0 {
		p.p50.Note = fmt.Sprintf("in %d rounds no query ran while clicks were made; they are left out", p.none)
	}
	if p.waited > 0 {
		p.p99.Note = fmt.Sprintf("%d clicks found no fresh shelf, and waited for the query", p.waited)
	}
	if len(p.p99.Values) > 0 {
		p.p99.Limit = &p.idle
	}
	return []Figure{p.p50, p.p99}
}
