// Package bench shows users how fast getwork is, and whether their PostgreSQL is fast enough. It measures each figure's limit in the
// same run, because machines are shared, and yesterday's figures say little about today.
//
// A [Measurement] is described by its figures, and each round adds a value to them, which it measures on a [stage.Stage]. A [Report]
// judges them by their goals and the machine's noise. The project's own measurements are in package measure.
package bench

import (
	"context"
	"iter"
	"slices"

	"getwork/cmd/internal/bench/stage"
)

// Figure is one line of the table.
type Figure struct {
	Key    string    `json:"key"`    // such as "clicks_64"; the same in every release
	Name   string    `json:"name"`   // for people
	Unit   string    `json:"unit"`   // such as "clicks/s" or "ms"
	Values []float64 `json:"values"` // one per round; the median counts
	Limit  *Figure   `json:"limit,omitempty"`
	Goal   *Goal     `json:"goal,omitempty"`
	Noise  *float64  `json:"noise,omitempty"` // the least share by which the value differs from itself, if the measurement knows
	Note   string    `json:"note,omitempty"`
}

// Goal is the goal of a figure: a ratio to its limit, or a value if it has no limit.
type Goal struct {
	Absolute bool     `json:"absolute,omitempty"` // the goal is a value although the figure has a limit
	AtLeast  *float64 `json:"at_least,omitempty"`
	AtMost   *float64 `json:"at_most,omitempty"`
}

// AtLeast is the goal of a ratio, or of a value without a limit, that must not be smaller.
func AtLeast(n float64) *Goal { return &Goal{AtLeast: &n} }

// AtMost is the goal of a ratio, or of a value without a limit, that must not be larger.
func AtMost(n float64) *Goal { return &Goal{AtMost: &n} }

// Below is the goal of a value that must not be larger, whatever its limit is.
func Below(n float64) *Goal { return &Goal{AtMost: &n, Absolute: true} }

// Median returns the median of the values, or 0 if there are none.
func (f *Figure) Median() float64 { return Quantile(f.Values, 0.5) }

// Quantile returns the value that a share q of all values does not exceed, interpolated, or 0 if there are none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i == len(sorted)-1 {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Measurement is one part of the command.
type Measurement struct {
	Name    string // its name in --only
	Help    string
	Figures func(e *stage.Env) []*Figure // in the order of the table
	Take    func(ctx context.Context, r *Rounds) error
}

// All are the measurements of `getwork bench`, in the order in which they are made.
var All = []Measurement{
	{Name: "clicks", Help: "clicks per second from a fresh shelf, 64 and 256 users, beside pgbench", Figures: clicksFigures, Take: clicks},
	{Name: "idle-click", Help: "how long one click takes on an idle system", Figures: idleClickFigures, Take: idleClick},
	{Name: "push", Help: "how long after a commit another node tells the user", Figures: pushFigures, Take: push},
	{Name: "bulk", Help: "items that programs take and complete by the hundred: by calls, ws/agent, getwork agent --lines", Figures: bulkFigures, Take: bulk},
	{Name: "nodes", Help: "clicks per second, and the CPU of one, on one node and on a dozen", Figures: nodesFigures, Take: nodes},
}

// Quick is what `getwork bench --quick` measures.
var Quick = Measurement{Name: "quick", Help: "how many clicks this PostgreSQL can take, in two minutes: only for --quick, or if named in --only", Figures: quickFigures, Take: quick}

// Run makes the measurement. It returns the figures that have a value; some can't be measured on every machine.
func (m Measurement) Run(ctx context.Context, e *stage.Env) ([]*Figure, error) {
	r := &Rounds{Env: e, Figures: m.Figures(e)}
	if err := m.Take(ctx, r); err != nil {
		return nil, err
	}
	for _, f := range r.Figures {
		if f.Limit != nil && len(f.Limit.Values) == 0 {
			f.Limit = nil
			if f.Goal != nil && !f.Goal.Absolute {
				f.Goal = nil
			}
		}
	}
	return slices.DeleteFunc(r.Figures, func(f *Figure) bool { return len(f.Values) == 0 }), nil
}

// Rounds is a measurement in progress.
type Rounds struct {
	*stage.Env
	Figures []*Figure
}

// Each iterates over the rounds, and logs each.
func (r *Rounds) Each() iter.Seq[int] {
	return func(yield func(int) bool) {
		for round := range r.Rounds {
			r.Logf("round %d of %d", round+1, r.Rounds)
			if !yield(round) {
				return
			}
		}
	}
}

// Figure returns the figure or limit with that key.
func (r *Rounds) Figure(key string) *Figure {
	for _, f := range r.Figures {
		for ; f != nil; f = f.Limit {
			if f.Key == key {
				return f
			}
		}
	}
	panic("bench: no figure has the key " + key)
}

// Add adds a value to a figure.
func (r *Rounds) Add(key string, value float64) {
	f := r.Figure(key)
	f.Values = append(f.Values, value)
	r.Logf("%s: %s %s", f.Name, legible(value), f.Unit)
}

// addCPU adds the CPU of a click to the figures whose keys begin with a prefix, as far as it is known.
func (r *Rounds) addCPU(prefix string, c stage.Cost) {
	if c.Database > 0 {
		r.Add(prefix+"_cpu_database", c.Database)
	}
	if c.Nodes > 0 {
		r.Add(prefix+"_cpu_node", c.Nodes)
	}
}
