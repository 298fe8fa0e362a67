// Package bench measures getwork, and beside each figure the limit that it is held against, in the same run: machines
// are shared, and what was measured yesterday says little about today.
//
// A [Measurement] is described by its figures; each round adds a value to them. Nodes are processes of the same
// executable, the load comes from this process. Answers are checked, too (no item is handed out twice, everybody is
// served, in order), and a measurement fails if they are wrong.
package bench

import (
	"context"
	"iter"
	"slices"
)

// Figure is one line of the table.
type Figure struct {
	Key    string    `json:"key"`    // such as "clicks_64"; the same in every release
	Name   string    `json:"name"`   // for people
	Unit   string    `json:"unit"`   // such as "clicks/s" or "ms"
	Values []float64 `json:"values"` // one of each round; the median counts
	Limit  *Figure   `json:"limit,omitempty"`
	Goal   *Goal     `json:"goal,omitempty"`
	Note   string    `json:"note,omitempty"`
}

// Goal is what a figure is to reach: a ratio to its limit, or a value if it has none.
type Goal struct {
	Absolute bool     `json:"absolute,omitempty"` // a value, though a limit stands beside it
	AtLeast  *float64 `json:"at_least,omitempty"`
	AtMost   *float64 `json:"at_most,omitempty"`
}

func atLeast(n float64) *Goal { return &Goal{AtLeast: &n} }
func atMost(n float64) *Goal  { return &Goal{AtMost: &n} }
func below(n float64) *Goal   { return &Goal{AtMost: &n, Absolute: true} }

// Median is the middle one of the values, 0 if there are none.
func (f *Figure) Median() float64 { return quantile(f.Values, 0.5) }

// quantile is the value that a share q of all values do not exceed, interpolated; 0 if there are none.
func quantile(values []float64, q float64) float64 {
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
	Name string // as --only takes it
	Help string

	ForWrite   bool // made only for a page, or when it is named
	ForAgainst bool // made only if there is another program to compare with

	figures func(e *Env) []*Figure // in the order of the table
	take    func(ctx context.Context, r *rounds) error
}

// All are the measurements, in the order in which they are made.
var All = []Measurement{
	{Name: "clicks", Help: "clicks a second from a fresh shelf, 64 and 256 users, beside pgbench", figures: clicksFigures, take: clicks},
	{Name: "idle-click", Help: "how long one click takes on an idle system", figures: idleClickFigures, take: idleClick},
	{Name: "push", Help: "how long after a commit another node tells the user", figures: pushFigures, take: push},
	{Name: "busy", Help: "how long a click takes while a query runs and the shelf is fresh", figures: busyFigures, take: busy},
	{Name: "history", Help: "what a click costs when millions of rows of work lie behind it; fills some 6 GB of disk, and takes minutes to", figures: historyFigures, take: history},
	{Name: "waiting", Help: "how long after the query's end the last of thousands of waiting users has their items", figures: waitingFigures, take: waiting},
	{Name: "memory", Help: "what a waiting user costs a node's memory", figures: memoryFigures, take: memory},
	{Name: "idle", Help: "what a node and the database do while nobody wants anything", figures: idleFigures, take: idle},
	{Name: "listeners", Help: "clicks a second while 19 more nodes listen", figures: listenersFigures, take: listeners},
	{Name: "wrap", Help: "what a query's run takes more than the query alone", figures: wrapFigures, take: wrap},
	{Name: "growth", Help: "how the figures grow: made only when it is named here, or for --write", figures: growthFigures, take: growth, ForWrite: true},
	{Name: "against", Help: "CPU per click beside another getwork's, in turn, and how much the same one differs from itself: made only for --against", figures: againstFigures, take: against, ForAgainst: true},
}

// Run makes the measurement. It returns the figures that have a value: some need what not every machine has.
func (m Measurement) Run(ctx context.Context, e *Env) ([]*Figure, error) {
	r := &rounds{Env: e, figures: m.figures(e)}
	if err := m.take(ctx, r); err != nil {
		return nil, err
	}
	for _, f := range r.figures {
		if f.Limit != nil && len(f.Limit.Values) == 0 {
			f.Limit = nil
			if f.Goal != nil && !f.Goal.Absolute {
				f.Goal = nil
			}
		}
	}
	return slices.DeleteFunc(r.figures, func(f *Figure) bool { return len(f.Values) == 0 }), nil
}

// rounds is a measurement under way.
type rounds struct {
	*Env
	figures []*Figure
}

// each counts the rounds, and tells which one begins.
func (r *rounds) each() iter.Seq[int] {
	return func(yield func(int) bool) {
		for round := range r.Rounds {
			r.log("round %d of %d", round+1, r.Rounds)
			if !yield(round) {
				return
			}
		}
	}
}

// figure finds a figure, or a limit of one, by its key.
func (r *rounds) figure(key string) *Figure {
	for _, f := range r.figures {
		for ; f != nil; f = f.Limit {
			if f.Key == key {
				return f
			}
		}
	}
	panic("bench: no figure has the key " + key)
}

// add adds a value to a figure.
func (r *rounds) add(key string, value float64) {
	f := r.figure(key)
	f.Values = append(f.Values, value)
	r.log("%s: %s %s", f.Name, legible(value), f.Unit)
}
