// Package measure has the measurements that only the project needs: for docs/benchmarks.md, and to see whether a change costs
// something. Package bench has the figures, the report and the verdicts.
package measure

import (
	"slices"

	"getwork/cmd/internal/bench"
)

// Growth measures how figures grow, for the page.
var Growth = bench.Measurement{Name: "growth", Help: "how the figures grow: only if named in --only, or for --write", Figures: growthFigures, Take: growth}

// Usual are the measurements that are made unless some are named, in their order.
var Usual = slices.Concat(bench.All, []bench.Measurement{
	{Name: "busy", Help: "how long a click takes while a query runs and the shelf is fresh", Figures: busyFigures, Take: busy},
	{Name: "history", Help: "what a click costs after millions of rows of work; fills some 6 GB of disk, which takes minutes", Figures: historyFigures, Take: history},
	{Name: "waiting", Help: "how long after the query's end the last of thousands of waiting users gets their items", Figures: waitingFigures, Take: waiting},
	{Name: "memory", Help: "how much memory of a node a waiting user takes", Figures: memoryFigures, Take: memory},
	{Name: "idle", Help: "what a node and the database do while nobody asks for work", Figures: idleFigures, Take: idle},
	{Name: "listeners", Help: "clicks per second while 19 more nodes listen", Figures: listenersFigures, Take: listeners},
	{Name: "wrap", Help: "how much longer a run takes than its query alone", Figures: wrapFigures, Take: wrap},
})

// All are all measurements.
var All = slices.Concat(Usual, []bench.Measurement{
	Growth,
	{Name: "rules", Help: "what limits, absences and clicks over all tasks cost: only if named in --only", Figures: rulesFigures, Take: rules},
	{Name: "identity", Help: "what it costs a click that its user has logged in: only if named in --only", Figures: identityFigures, Take: identity},
	{Name: "query-login", Help: "what runs and clicks cost more where queries have a login of their own: only if named in --only", Figures: queryLoginFigures, Take: queryLogin},
})
