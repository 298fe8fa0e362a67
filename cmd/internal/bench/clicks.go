package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"getwork/cmd/internal/bench/stage"
)

func clicksFigures(*stage.Env) []*Figure {
	five := &Figure{Key: "limit_five_statements", Name: "pgbench: one click a transaction, five statements", Unit: "clicks/s"}
	of := func(users int, goal float64, database, node *Goal) []*Figure {
		key, who := fmt.Sprintf("clicks_%d", users), fmt.Sprintf("%d users", users)
		return []*Figure{
			{Key: key, Name: "Clicks from a fresh shelf, one swap of it included, " + who, Unit: "clicks/s", Limit: five, Goal: AtLeast(goal)},
			{Key: key + "_steady", Name: "Clicks from a fresh shelf while no query runs, " + who, Unit: "clicks/s"},
			{Key: key + "_waited", Name: "Clicks that found no fresh shelf in such a window, " + who, Unit: "clicks", Goal: AtMost(0)},
			{Key: key + "_longest", Name: "The longest click in such a window, " + who, Unit: "ms", Goal: AtMost(250)},
			{Key: key + "_cpu_database", Name: "The database's CPU for a click, " + who, Unit: "µs", Goal: database},
			{Key: key + "_cpu_node", Name: "The node's CPU for a click, " + who, Unit: "µs", Goal: node},
		}
	}
	return slices.Concat(of(64, 2, nil, nil), of(256, 3, AtMost(90), AtMost(50)), []*Figure{
		{Key: "limit_one_statement", Name: "pgbench: one click a transaction, one statement", Unit: "clicks/s"},
		{Key: "limit_set_based", Name: "the same writes by set-based SQL, 100 clicks a transaction", Unit: "clicks/s"},
	})
}

// clicks measures how many clicks per second are answered from a fresh shelf, with three items each.
func clicks(ctx context.Context, r *Rounds) error {
	c := clicking{Rounds: r, items: stage.Sized(r.Env, 1_000_000, 3_000_000), candidates: stage.Sized(r.Env, 300_000, 1_000_000)}
	if err := c.fit(ctx); err != nil {
		return err
	}
	of64, of256 := windows{users: 64}, windows{users: 256}
	var each [][]float64
	for range r.Each() {
		if err := c.take(ctx, &of64); err != nil {
			return err
		}
		rates, err := c.limits(ctx)
		if err != nil {
			return err
		}
		if rates != nil {
			each = append(each, rates)
		}
		if err := c.take(ctx, &of256); err != nil {
			return err
		}
	}
	for _, w := range []windows{of64, of256} {
		r.Figure(fmt.Sprintf("clicks_%d", w.users)).Note = w.note()
	}
	if len(each) > 0 {
		r.Figure("limit_five_statements").Note = bestOf(each)
	}
	return nil
}

// clicking holds how clicks are measured on this machine.
type clicking struct {
	*Rounds
	items, candidates int           // in the table that the query reads; on the shelf
	window            time.Duration // as long as the shelf is fresh
}

// fit makes the window, and the time that a shelf is fresh, a minute, or longer on a slow machine. If a shelf were stale before
// the next is ready, the rate would measure only that.
func (c *clicking) fit(ctx context.Context) error {
	return c.On(ctx, 1, func(s *stage.Stage) error {
		if err := s.MakeItems(ctx, c.candidates); err != nil {
			return err
		}
		began := time.Now()
		err := s.Fill(ctx, "fill", stage.ItemsQuery, c.candidates, stage.UntilEnd)
		took := time.Since(began)
		c.window = max(stage.Sized(c.Env, 8*time.Second, time.Minute), (4 * took).Round(time.Second))
		c.Logf("a shelf of %d candidates is filled within %.1f s; windows are of %s", c.candidates, took.Seconds(), c.window)
		return err
	})
}

// windows holds what the figures' notes say about the rounds with one number of users.
type windows struct {
	users        int
	lasted       []float64 // s
	withoutSwaps int
}

// take makes one round on a fresh getwork.
func (c *clicking) take(ctx context.Context, w *windows) error {
	return c.On(ctx, 1, func(s *stage.Stage) error {
		const task = "clicks"
		if err := s.MakeItems(ctx, c.items); err != nil {
			return err
		}
		if err := s.Fill(ctx, task, stage.ItemsQuery, c.candidates, c.window); err != nil {
			return err
		}
		// A first run under load may take longer than getwork expects, which knows only the run before. So the window
		// ends when the new shelf is there.
		began := time.Now()
		out, err := s.Measure(ctx, stage.Load{Task: task, Users: w.users, Most: c.items/stage.WantedEach - w.users}, c.window, func() (bool, error) {
			runs, err := s.Runs(ctx, task)
			return stage.Swapped(runs, began.Add(stage.WarmUp), time.Now()), err
		})
		if err != nil {
			return err
		}
		runs, err := s.Runs(ctx, task)
		if err != nil {
			return err
		}
		c.count(w, out, runs)
		return s.Check(ctx, task)
	})
}

// count adds a round's values.
func (c *clicking) count(w *windows, out *stage.Outcome, runs []stage.Run) {
	key, cost := fmt.Sprintf("clicks_%d", w.users), out.Cost()
	c.Add(key, cost.Rate)
	if rate := steadyRate(out, runs); rate > 0 {
		c.Add(key+"_steady", rate)
	}
	c.addCPU(key, cost)
	from, to := out.Used[0].At, out.Used[len(out.Used)-1].At
	longest := slices.MaxFunc(out.Between(from, to), func(a, b stage.Answered) int { return cmp.Compare(a.Took, b.Took) })
	c.Add(key+"_waited", float64(out.Waited))
	c.Add(key+"_longest", stage.Millis(longest.Took))
	w.lasted = append(w.lasted, to.Sub(from).Seconds())
	if !stage.Swapped(runs, from, to) {
		w.withoutSwaps++
	}
}

// steadyRate returns the clicks per second in the seconds in which no run was under way, or 0 if there are none.
func steadyRate(o *stage.Outcome, runs []stage.Run) float64 {
	var clicks, seconds float64
	for i := 1; i < len(o.Used); i++ {
		from, to := o.Used[i-1].At, o.Used[i].At
		if !stage.UnderWay(runs, from, to) {
			clicks += float64(len(o.Between(from, to)))
			seconds += to.Sub(from).Seconds()
		}
	}
	if seconds == 0 {
		return 0
	}
	return clicks / seconds
}

func (w *windows) note() string {
	note := fmt.Sprintf("windows of %.0f – %.0f s", slices.Min(w.lasted), slices.Max(w.lasted))
	if w.withoutSwaps > 0 {
		note += fmt.Sprintf("; in %d of %d windows no new shelf came", w.withoutSwaps, len(w.lasted))
	}
	return note
}

// limits measures the same writes without getwork. It returns the rate for each number of pgbench's clients, or nil if
// there is no pgbench.
func (c *clicking) limits(ctx context.Context) (rates []float64, err error) {
	const enough = 1_500_000 // more candidates than are used up in some seconds
	lasts := stage.Sized(c.Env, 1*time.Second, 3*time.Second)
	err = onBare(ctx, c.Env, enough, func(b *bare) error {
		rates, err = b.perClients(ctx, fiveStatements, lasts)
		switch {
		case errors.Is(err, errNoPgbench):
			c.Figure("limit_set_based").Note = err.Error()
		case err != nil:
			return err
		default:
			c.Add("limit_five_statements", slices.Max(rates))
			one, err := b.perClients(ctx, oneStatement, lasts)
			if err != nil {
				return err
			}
			c.Add("limit_one_statement", slices.Max(one))
		}
		set, err := b.together(ctx, 2, 100, lasts) // more connections than there are cores gain nothing
		if err == nil {
			c.Add("limit_set_based", set)
		}
		return err
	})
	return rates, err
}

// bestOf names the rates, given per round, of which the limit is the best.
func bestOf(each [][]float64) string {
	var parts []string
	for i, clients := range clientCounts {
		var rates []float64
		for _, round := range each {
			rates = append(rates, round[i])
		}
		parts = append(parts, fmt.Sprintf("%.0f with %d", Quantile(rates, 0.5), clients))
	}
	return "the best of " + strings.Join(parts, ", ") + " clients"
}
