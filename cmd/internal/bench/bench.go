// Package bench measures what getwork does, and beside each figure the limit that it is held against, in the same run:
// the machines that it runs on are shared, and what was measured yesterday says little about today.
//
// Every measurement is a function of an [Env] that returns figures. Nodes are processes of the same executable; the
// load comes from this process. A measurement also checks what it was answered (nobody has what another has, everybody
// was served, in order), and fails if that is not so.
package bench

import (
	"context"
	"slices"
)

// Figure is one line of the table.
type Figure struct {
	Key    string    `json:"key"`    // such as "clicks_64"; the same in every release
	Name   string    `json:"name"`   // what people read
	Unit   string    `json:"unit"`   // such as "clicks/s" or "ms"
	Values []float64 `json:"values"` // one of each round; the median counts
	Limit  *Figure   `json:"limit,omitempty"`
	Goal   *Goal     `json:"goal,omitempty"`
	Note   string    `json:"note,omitempty"`
}

// Goal is what a figure is to reach: a ratio to its limit, or without one a value.
type Goal struct {
	Absolute bool     `json:"absolute,omitempty"` // a value, though a limit stands beside it
	AtLeast  *float64 `json:"at_least,omitempty"`
	AtMost   *float64 `json:"at_most,omitempty"`
}

// Median is the middle one of the values, 0 if there are none.
func (f *Figure) Median() float64 {
	if len(f.Values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(f.Values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Env is where measurements are made.
type Env struct {
	Binary      string // getwork's executable
	Against     string // another one to compare it with; empty: no comparison is made
	DatabaseURL string // a server's, with a database in which schemas may be made
	ServerPID   int    // of PostgreSQL's first process, if it is on this machine; 0: its CPU is not known
	Rounds      int    // how often each figure is taken
	Quick       bool   // smaller numbers of users and rows: a first answer, not to be quoted
	Log         func(format string, args ...any)
}

// Measurement is one of the command's parts.
type Measurement struct {
	Name string // as --only takes it
	Help string
	Run  func(ctx context.Context, e *Env) ([]Figure, error)

	ForPlots   bool // made only if plots are wanted
	ForAgainst bool // made only if there is another program to compare with
}
