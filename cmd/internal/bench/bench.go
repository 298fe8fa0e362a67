// Package bench measures getwork. It measures each figure's limit in the same run, because machines are shared, and
// yesterday's figures say little about today.
//
// A [Measurement] is described by its figures, and each round adds a value to them. Nodes are processes of the same
// executable; this process makes the load. A measurement also checks the answers (no item is handed out twice, and
// everybody is served, in order), and fails if they are wrong.
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

func atLeast(n float64) *Goal { return &Goal{AtLeast: &n} }
func atMost(n float64) *Goal  { return &Goal{AtMost: &n} }
func below(n float64) *Goal   { return &Goal{AtMost: &n, Absolute: true} }

// Median returns the median of the values, or 0 if there are none.
func (f *Figure) Median() float64 { return quantile(f.Values, 0.5) }

// quantile returns the value that a share q of all values does not exceed, interpolated, or 0 if there are none.
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
	Name string // its name in --only
	Help string
	For  string // the flag without which it is not made unless it is named, such as ForWrite; empty: it is always made

	figures func(e *Env) []*Figure // in the order of the table
	take    func(ctx context.Context, r *rounds) error
}

// The flags that ask for a measurement of their own.
const (
	ForWrite   = "--write"
	ForAgainst = "--against"
	ForQuick   = "--quick"
	ForNamed   = "--only"
)

// All are the measurements, in the order in which they are made.
var All = []Measurement{
	{Name: "clicks", Help: "clicks per second from a fresh shelf, 64 and 256 users, beside pgbench", figures: clicksFigures, take: clicks},
	{Name: "idle-click", Help: "how long one click takes on an idle system", figures: idleClickFigures, take: idleClick},
	{Name: "push", Help: "how long after a commit another node tells the user", figures: pushFigures, take: push},
	{Name: "busy", Help: "how long a click takes while a query runs and the shelf is fresh", figures: busyFigures, take: busy},
	{Name: "history", Help: "what a click costs after millions of rows of work; fills some 6 GB of disk, which takes minutes", figures: historyFigures, take: history},
	{Name: "waiting", Help: "how long after the query's end the last of thousands of waiting users gets their items", figures: waitingFigures, take: waiting},
	{Name: "memory", Help: "how much memory of a node a waiting user takes", figures: memoryFigures, take: memory},
	{Name: "idle", Help: "what a node and the database do while nobody asks for work", figures: idleFigures, take: idle},
	{Name: "listeners", Help: "clicks per second while 19 more nodes listen", figures: listenersFigures, take: listeners},
	{Name: "wrap", Help: "how much longer a run takes than its query alone", figures: wrapFigures, take: wrap},
	{Name: "growth", Help: "how the figures grow: only if named in --only, or for --write", figures: growthFigures, take: growth, For: ForWrite},
	{Name: "quick", Help: "how many clicks this PostgreSQL can take, in two minutes: only for --quick, or if named in --only", figures: quickFigures, take: quick, For: ForQuick},
	{Name: "identity", Help: "what it costs a click that its user has logged in: only if named in --only", figures: identityFigures, take: identity, For: ForNamed},
	{Name: "query-login", Help: "what runs and clicks cost more where queries have a login of their own: only if named in --only", figures: queryLoginFigures, take: queryLogin, For: ForNamed},
	{Name: "against", Help: "CPU per click compared with another getwork's, in turn, and how much each differs from itself: only for --against", figures: againstFigures, take: against, For: ForAgainst},
}

// Run makes the measurement. It returns the figures that have a value; some can't be measured on every machine.
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

// rounds is a measurement in progress.
type rounds struct {
	*Env
	figures []*Figure
}

// each iterates over the rounds, and logs each.
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

// figure returns the figure or limit with that key.
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
