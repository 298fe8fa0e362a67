package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// clicksSetup are the numbers of a measurement of clicks.
type clicksSetup struct {
	items      int           // in the table that the query reads
	candidates int           // max_candidates
	window     time.Duration // as long as a shelf is fresh, and on until one swap has fallen into it
	limit      time.Duration // of each run of a limit
}

func clicksSetupFor(quick bool) clicksSetup {
	if quick {
		return clicksSetup{items: 1_000_000, candidates: 300_000, window: 8 * time.Second, limit: time.Second}
	}
	return clicksSetup{items: 3_000_000, candidates: 1_000_000, window: 30 * time.Second, limit: 3 * time.Second}
}

// fit makes the window, and the time that a shelf is fresh, long enough for this machine: with a shelf that is stale
// before the next can be ready, nothing but that would be measured.
func (c *clicksSetup) fit(ctx context.Context, e *Env) error {
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.makeItems(ctx, c.candidates); err != nil {
		return err
	}
	began := time.Now()
	if err := s.task(ctx, "fill", itemsQuery, map[string]any{"max_candidates": c.candidates, "fresh_for": "24h"}); err != nil {
		return err
	}
	if _, err := s.fillShelf(ctx, "fill"); err != nil {
		return err
	}
	took := time.Since(began)
	c.window = max(c.window, (4 * took).Round(time.Second))
	e.log("a shelf of %d candidates is filled within %.1f s; windows are of %s", c.candidates, took.Seconds(), c.window)
	return nil
}

// clicksFigures are what one number of users brings.
type clicksFigures struct {
	users                        int
	windows                      []float64 // s
	rate, steady, database, node Figure
	longest                      float64 // ms
	waited, withoutSwap          int
}

func newClicksFigures(users int) *clicksFigures {
	key := fmt.Sprintf("clicks_%d", users)
	of := fmt.Sprintf("%d users", users)
	return &clicksFigures{
		users:    users,
		rate:     Figure{Key: key, Name: "Clicks from a fresh shelf, one swap of it included, " + of, Unit: "clicks/s"},
		steady:   Figure{Key: key + "_steady", Name: "Clicks from a fresh shelf while no query runs, " + of, Unit: "clicks/s"},
		database: Figure{Key: key + "_cpu_database", Name: "The database's CPU for a click, " + of, Unit: "µs"},
		node:     Figure{Key: key + "_cpu_node", Name: "The node's CPU for a click, " + of, Unit: "µs"},
	}
}

// clicks measures how many clicks a second are answered from a fresh shelf, three items each.
func clicks(ctx context.Context, e *Env) ([]Figure, error) {
	setup := clicksSetupFor(e.Quick)
	e.log("how long filling the shelf takes")
	if err := setup.fit(ctx, e); err != nil {
		return nil, err
	}
	of64, of256 := newClicksFigures(64), newClicksFigures(256)
	limits := newClicksLimits(setup)
	for round := range e.Rounds {
		e.log("round %d of %d: 64 users", round+1, e.Rounds)
		if err := of64.take(ctx, e, setup); err != nil {
			return nil, err
		}
		e.log("round %d of %d: one click a transaction", round+1, e.Rounds)
		if err := limits.take(ctx, e); err != nil {
			return nil, err
		}
		e.log("round %d of %d: 256 users", round+1, e.Rounds)
		if err := of256.take(ctx, e, setup); err != nil {
			return nil, err
		}
	}
	limits.describe()
	figures := append(of64.all(&limits.five, 2), of256.all(&limits.five, 3)...)
	return append(figures, limits.others()...), nil
}

// take is one round, on a fresh getwork.
func (c *clicksFigures) take(ctx context.Context, e *Env, setup clicksSetup) error {
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.makeItems(ctx, setup.items); err != nil {
		return err
	}
	settings := map[string]any{"max_candidates": setup.candidates, "fresh_for": setup.window.String()}
	if err := s.task(ctx, "clicks", itemsQuery, settings); err != nil {
		return err
	}
	first, err := s.fillShelf(ctx, "clicks")
	if err != nil {
		return err
	}
	l := load{url: s.nodes.URL(0), task: "clicks", users: c.users, count: 3, most: int64(setup.items/3 - c.users)}
	// A first run under load may take longer than getwork expects, which knows the one before it: so the window ends when
	// the new shelf has come.
	began := time.Now()
	out, used, err := s.measure(ctx, l, setup.window, func() (bool, error) {
		runs, err := s.runs(ctx, "clicks")
		return slices.ContainsFunc(runs, finishedAfter(began.Add(warmUp))), err
	})
	if err != nil {
		return err
	}
	runs, err := s.runs(ctx, "clicks")
	if err != nil {
		return err
	}
	for _, r := range runs {
		if finishedAfter(out.began)(r) {
			e.log("a run of %.1f s brought %d candidates, %.1f s after the load had begun", r.FinishedAt.Sub(r.StartedAt).Seconds(), *r.Candidates, r.FinishedAt.Sub(out.began).Seconds())
		}
	}
	c.add(out, used, runs)
	return s.check(ctx, "clicks", append(out.items, first...))
}

// warmUp is how long a load is on before anything is measured: plans and connections are made in it.
const warmUp = time.Second

// measure puts a load on, and reads the usage once a second after it has warmed up: for as long as the window is, and
// then until enough says so, but no longer than three windows. Without enough the window is enough.
func (s *stage) measure(ctx context.Context, l load, window time.Duration, enough func() (bool, error)) (out *outcome, used []usage, err error) {
	g, ctx := errgroup.WithContext(ctx)
	over, end := context.WithCancel(ctx)
	defer end()
	g.Go(func() (err error) {
		defer end()
		out, err = l.run(ctx, over)
		return err
	})
	g.Go(func() (err error) {
		sleep(over, warmUp)
		used, err = s.env.watch(over, s.nodes)
		return err
	})
	g.Go(func() error {
		defer end()
		sleep(over, warmUp+window)
		for began := time.Now(); enough != nil && over.Err() == nil && time.Since(began) < 2*window; sleep(over, time.Second) {
			if yes, err := enough(); yes || err != nil {
				return err
			}
		}
		return nil
	})
	err = g.Wait()
	if err == nil && len(used) < 2 {
		err = errors.New("the items were used up before anything was measured: this machine is faster than was foreseen")
	}
	return out, used, err
}

// add adds a round's values.
func (c *clicksFigures) add(out *outcome, used []usage, runs []ranking) {
	from, to := used[0], used[len(used)-1]
	window := out.between(from.at, to.at)
	c.rate.Values = append(c.rate.Values, float64(len(window))/to.at.Sub(from.at).Seconds())
	all := to.since(from)
	if all.database > 0 {
		c.database.Values = append(c.database.Values, micros(all.database)/float64(len(window)))
	}
	if all.nodes > 0 {
		c.node.Values = append(c.node.Values, micros(all.nodes)/float64(len(window)))
	}
	if rate, some := steadyRate(out, used, runs); some {
		c.steady.Values = append(c.steady.Values, rate)
	}
	for _, click := range window {
		c.longest = max(c.longest, millis(click.took))
	}
	c.waited += out.waited
	if !slices.ContainsFunc(runs, func(r ranking) bool { return finishedAfter(from.at)(r) && r.FinishedAt.Before(to.at) }) {
		c.withoutSwap++
	}
	c.windows = append(c.windows, to.at.Sub(from.at).Seconds())
}

// finishedAfter picks runs whose shelf came after some time.
func finishedAfter(t time.Time) func(ranking) bool {
	return func(r ranking) bool { return r.FinishedAt != nil && r.FinishedAt.After(t) }
}

// steadyRate is that of the seconds in which no run was under way.
func steadyRate(out *outcome, used []usage, runs []ranking) (rate float64, some bool) {
	var clicks int
	var time time.Duration
	for i := 1; i < len(used); i++ {
		from, to := used[i-1].at, used[i].at
		if !overlaps(runs, from, to) {
			clicks += len(out.between(from, to))
			time += to.Sub(from)
		}
	}
	return float64(clicks) / time.Seconds(), time > 0
}

// all are the figures, the first of them held against its limit.
func (c *clicksFigures) all(limit *Figure, goal float64) []Figure {
	notes := []string{fmt.Sprintf("windows of %.0f – %.0f s, the longest click took %.0f ms", slices.Min(c.windows), slices.Max(c.windows), c.longest)}
	if c.waited > 0 {
		notes = append(notes, fmt.Sprintf("%d clicks found no fresh shelf, and waited for the query", c.waited))
	}
	if c.withoutSwap > 0 {
		notes = append(notes, fmt.Sprintf("in %d of %d windows no new shelf came", c.withoutSwap, len(c.rate.Values)))
	}
	c.rate.Note = strings.Join(notes, "; ")
	if len(limit.Values) > 0 {
		c.rate.Limit, c.rate.Goal = limit, atLeast(goal)
	}
	figures := []Figure{c.rate}
	for _, f := range []Figure{c.steady, c.database, c.node} {
		if len(f.Values) > 0 {
			figures = append(figures, f)
		}
	}
	return figures
}

func atLeast(n float64) *Goal { return &Goal{AtLeast: &n} }
func atMost(n float64) *Goal  { return &Goal{AtMost: &n} }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// clicksLimits are the same writes without getwork.
type clicksLimits struct {
	lasts          time.Duration
	five, one, set Figure
	each           [][]float64 // of each round, the rate of each number of clients
	missing        error       // why two of them can't be measured
}

func newClicksLimits(setup clicksSetup) *clicksLimits {
	return &clicksLimits{
		lasts: setup.limit,
		five:  Figure{Key: "limit_five_statements", Name: "pgbench: one click a transaction, five statements", Unit: "clicks/s"},
		one:   Figure{Key: "limit_one_statement", Name: "pgbench: one click a transaction, one statement", Unit: "clicks/s"},
		set:   Figure{Key: "limit_set_based", Name: "the same writes by set-based SQL, 100 clicks a transaction", Unit: "clicks/s"},
	}
}

// limitCandidates are as many as nobody uses up in some seconds.
const limitCandidates = 1_500_000

func (l *clicksLimits) take(ctx context.Context, e *Env) error {
	b, leave, err := e.bare(ctx, limitCandidates)
	if err != nil {
		return err
	}
	defer leave()
	five, each, err := b.best(ctx, fiveStatements, l.lasts)
	switch {
	case errors.Is(err, errNoPgbench):
		l.missing = err
	case err != nil:
		return err
	default:
		l.five.Values = append(l.five.Values, five)
		l.each = append(l.each, each)
		one, _, err := b.best(ctx, oneStatement, l.lasts)
		if err != nil {
			return err
		}
		l.one.Values = append(l.one.Values, one)
	}
	set, err := b.setBased(ctx, l.lasts)
	l.set.Values = append(l.set.Values, set)
	return err
}

// describe says of what the limit is the best.
func (l *clicksLimits) describe() {
	if len(l.each) == 0 {
		return
	}
	var parts []string
	for i, clients := range clientCounts {
		var f Figure
		for _, round := range l.each {
			f.Values = append(f.Values, round[i])
		}
		parts = append(parts, fmt.Sprintf("%.0f with %d", f.Median(), clients))
	}
	l.five.Note = "the best of " + strings.Join(parts, ", ") + " clients"
}

// others are the figures beside those that have a limit, which shows the first.
func (l *clicksLimits) others() []Figure {
	if l.missing != nil {
		l.set.Note = l.missing.Error()
		return []Figure{l.set}
	}
	return []Figure{l.one, l.set}
}
