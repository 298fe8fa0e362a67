package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"getwork/cmd/internal/bench/stage"
)

// quickSizes say how much --quick measures. The shelf has items for every click of a window, also on a machine that is
// several times as fast as ours.
type quickSizes struct {
	users, items   int
	window         time.Duration // also of the limit
	single, pushes int           // clicks and pushes, one after another
	within         time.Duration // no round begins that would end later
}

func quickFigures(e *stage.Env) []*Figure {
	alone := &Figure{Key: "quick_limit_clicks", Name: "one click a transaction, without getwork, HTTP and JSON, on 8 connections", Unit: "clicks/s"}
	all := []*Figure{
		{Key: "quick_clicks", Name: "Clicks from a fresh shelf, 256 users", Unit: "clicks/s", Limit: alone},
		{Key: "quick_cpu_database", Name: "The database's CPU for a click", Unit: "µs"},
		{Key: "quick_cpu_node", Name: "The node's CPU for a click", Unit: "µs"},
	}
	for _, f := range slices.Concat(idleClickFigures(e), pushFigures(e)) {
		f.Key, f.Goal = "quick_"+f.Key, nil
		if f.Limit != nil {
			f.Limit.Key = "quick_" + f.Limit.Key
		}
		all = append(all, f)
	}
	return all
}

// quick answers how many clicks a PostgreSQL can take, in less than two minutes.
func quick(ctx context.Context, r *Rounds) error {
	return quickOf(ctx, r, quickSizes{users: 256, items: 300_000, window: 2 * time.Second, single: 100, pushes: 60, within: 105 * time.Second})
}

func quickOf(ctx context.Context, r *Rounds, q quickSizes) error {
	began := time.Now()
	var longest time.Duration
	for round := range r.Each() {
		if round > 0 && time.Since(began)+longest > q.within {
			r.Figure("quick_clicks").Note = fmt.Sprintf("only %d of %d rounds, since the time was up", round, r.Rounds)
			break
		}
		start := time.Now()
		if err := r.quickRound(ctx, q); err != nil {
			return err
		}
		longest = max(longest, time.Since(start))
	}
	if r.ServerPID == 0 {
		r.Figure("quick_cpu_node").Note = "the database's CPU can't be read, since its processes are not known to be on this machine"
	}
	return nil
}

func (r *Rounds) quickRound(ctx context.Context, q quickSizes) error {
	c, err := r.FreshClicks(ctx, stage.FreshLoad{Users: q.users, Nodes: 1, Items: q.items, Window: q.window})
	if err != nil {
		return err
	}
	r.Add("quick_clicks", c.Rate)
	r.addCPU("quick", c)
	err = onBare(ctx, r.Env, q.items, func(b *bare) error {
		rate, err := b.together(ctx, 8, 1, q.window)
		if err == nil {
			r.Add("quick_limit_clicks", rate)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := r.addIdleClicks(ctx, "quick_", q.single); err != nil {
		return err
	}
	return r.addPushes(ctx, "quick_", q.pushes)
}

// Conclude says in one sentence what the figures of --quick mean for people. It says nothing without those figures.
func (r *Report) Conclude() {
	i := slices.IndexFunc(r.Figures, func(f *Figure) bool { return f.Key == "quick_clicks" })
	if i < 0 {
		return
	}
	clicks := r.Figures[i]
	varied := ""
	if noise, known := spread(clicks.Values); known {
		varied = fmt.Sprintf(" (%s from round to round)", percent(noise))
	}
	where := fmt.Sprintf("the node and the load ran on these %d cores, and PostgreSQL elsewhere", runtime.NumCPU())
	if r.Facts.SameMachine {
		where = fmt.Sprintf("it shared these %d cores with the node and the load", runtime.NumCPU())
	}
	rate := clicks.Median()
	r.Conclusion = fmt.Sprintf("About %s people can each click once a minute on this PostgreSQL: it served %s clicks a second%s, of three items each, while %s.",
		Thousands(roughly(60*rate)), Thousands(roughly(rate)), varied, where)
}

// roughly rounds a number down to two digits, since the others would promise what was not measured.
func roughly(v float64) int {
	if v < 10 {
		return int(v)
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return int(math.Floor(v/unit) * unit)
}
