package measure

import (
	"context"
	"fmt"
	"math"
	"time"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
)

// These queries compute or sleep once, and then list the items.
const (
	sleepingQuery = `
with s as materialized (select pg_sleep(%g))
select item, customer, amount from s, getwork.bench_item order by item`

	computingQuery = `
with s as materialized (select sum(hashtextextended(md5(a::text || b), 1)) from generate_series(1, %d) a, generate_series(1, 1000) b)
select item, customer, amount from s, getwork.bench_item order by item`
)

func busyFigures(*stage.Env) []*bench.Figure {
	var all []*bench.Figure
	for _, kind := range []string{"sleep", "compute"} {
		key, name := "busy_"+kind, "One click from a fresh shelf while a query "+kind+"s, "
		all = append(all, &bench.Figure{Key: key + "_p50", Name: name + "p50", Unit: "ms"},
			&bench.Figure{Key: key + "_p99", Name: name + "p99", Unit: "ms", Limit: &bench.Figure{Key: "limit_" + key, Name: "p99 while none runs", Unit: "ms"}})
	}
	all[1].Goal = bench.AtMost(2)
	return all
}

// busy measures clicks from a fresh shelf while the next run's query is under way.
func busy(ctx context.Context, r *bench.Rounds) error {
	lasts := stage.Sized(r.Env, 2*time.Second, 5*time.Second)
	kinds := []*busyKind{
		{Rounds: r, key: "busy_sleep", query: func(context.Context, *stage.Stage) (string, error) {
			return fmt.Sprintf(sleepingQuery, lasts.Seconds()), nil
		}},
		{Rounds: r, key: "busy_compute", query: func(ctx context.Context, s *stage.Stage) (string, error) { // for about as long as it sleeps
			const probe = 300
			took, err := readAll(ctx, s, fmt.Sprintf(computingQuery, probe))
			return fmt.Sprintf(computingQuery, max(1, int(math.Round(probe*stage.Millis(lasts)/took)))), err
		}},
	}
	for range r.Each() {
		for _, k := range kinds {
			if err := r.On(ctx, 1, func(s *stage.Stage) error { return k.take(ctx, s, lasts) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// busyKind holds the clicks while one kind of query runs.
type busyKind struct {
	*bench.Rounds
	key          string
	query        func(ctx context.Context, s *stage.Stage) (string, error)
	waited, none int
}

func (k *busyKind) take(ctx context.Context, s *stage.Stage, lasts time.Duration) error {
	const task, items = "busy", 50_000
	if err := s.MakeItems(ctx, items); err != nil {
		return err
	}
	query, err := k.query(ctx, s)
	if err != nil {
		return err
	}
	fresh := 3 * lasts
	if err := s.Fill(ctx, task, query, items, fresh); err != nil {
		return err
	}
	// As long as a shelf is fresh and a query runs, so that one whole run falls into it.
	over, stop := context.WithTimeout(ctx, fresh+lasts)
	defer stop()
	out, err := s.Run(ctx, over, stage.Load{Task: task, Users: 1, Pause: bench.Breath})
	if err != nil {
		return err
	}
	runs, err := s.Runs(ctx, task)
	if err != nil {
		return err
	}
	k.count(out, runs)
	return s.Check(ctx, task)
}

// count separates the clicks during a run from those while none was under way, nor shortly before or after.
func (k *busyKind) count(out *stage.Outcome, runs []stage.Run) {
	const apart = 500 * time.Millisecond
	var during, idle []float64
	for _, c := range out.Clicks[min(len(out.Clicks), 50):] { // the first ones make plans
		switch began := c.At.Add(-c.Took); {
		case stage.UnderWay(runs, began, c.At):
			during = append(during, stage.Millis(c.Took))
		case !stage.UnderWay(runs, began.Add(-apart), c.At.Add(apart)):
			idle = append(idle, stage.Millis(c.Took))
		}
	}
	if k.waited += out.Waited; k.waited > 0 {
		k.Figure(k.key + "_p99").Note = fmt.Sprintf("%d clicks found no fresh shelf, and waited for the query", k.waited)
	}
	if len(during) == 0 || len(idle) == 0 {
		k.none++
		k.Logf("no query ran while clicks were made")
		k.Figure(k.key + "_p50").Note = fmt.Sprintf("in %d rounds no query ran while clicks were made; they are left out", k.none)
		return
	}
	k.Add(k.key+"_p50", bench.Quantile(during, 0.5))
	k.Add(k.key+"_p99", bench.Quantile(during, 0.99))
	k.Add("limit_"+k.key, bench.Quantile(idle, 0.99))
}
