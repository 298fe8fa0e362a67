package bench

import (
	"fmt"
	"math"
	"slices"
)

// Verdict says whether a goal was reached.
type Verdict string

// The verdicts. Of a goal that is within the noise nobody can say whether it was met: measured once more, the same
// program may be on the other side of it.
const (
	GoalMet     Verdict = "met"
	GoalNotMet  Verdict = "not met"
	WithinNoise Verdict = "within the noise"
)

// judge compares a value with a goal. noise is the share of the value by which it differs from itself when it is
// measured again.
func (g *Goal) judge(value, noise float64) Verdict {
	margin := math.Abs(value) * noise
	low, high := g.holds(value-margin), g.holds(value+margin)
	switch {
	case low && high:
		return GoalMet
	case low || high || g.holds(value):
		return WithinNoise
	}
	return GoalNotMet
}

func (g *Goal) holds(value float64) bool {
	return (g.AtLeast == nil || value >= *g.AtLeast) && (g.AtMost == nil || value <= *g.AtMost)
}

// Verdict returns the verdict on the figure's goal, and the noise that it takes into account. known is false if there
// is no goal, nothing to compare with it, or no noise was measured.
//
// The noise of a ratio is how much it differs between rounds, each of which measures figure and limit minutes apart at
// most. A value without a limit, and everything that was measured in one round only, differs at least as much as the
// run's references did between its start and its end.
func (r *Report) Verdict(f *Figure) (verdict Verdict, noise float64, known bool) {
	value, rounds, known := f.compared()
	if f.Goal == nil || !known {
		return "", 0, false
	}
	if f.Goal.AtMost != nil && *f.Goal.AtMost == 0 { // it is not to happen at all, in no round
		return f.Goal.judge(slices.Max(f.Values), 0), 0, true
	}
	noise, known = spread(rounds)
	if f.Noise != nil {
		noise = max(noise, *f.Noise)
		return f.Goal.judge(value, noise), noise, true
	}
	if !known || f.Goal.Absolute || f.Limit == nil {
		reference, measured := r.reference(f.Unit)
		noise, known = max(noise, reference), known || measured
	}
	if !known {
		return "", 0, false
	}
	return f.Goal.judge(value, noise), noise, true
}

// compared returns what the goal is about, the figure's values or their ratios to the limit: the median, and each
// round's. Rounds are missing if figure and limit have not equally many.
func (f *Figure) compared() (value float64, rounds []float64, known bool) {
	if f.Limit == nil || f.Goal != nil && f.Goal.Absolute {
		return f.Median(), f.Values, len(f.Values) > 0
	}
	value, known = f.Ratio()
	return value, f.ratios(), known
}

// spread returns by how much a value typically differs from the one before it, as a share of all values' median.
func spread(values []float64) (share float64, known bool) {
	middle := math.Abs(Quantile(values, 0.5))
	if len(values) < 2 || middle == 0 {
		return 0, false
	}
	var steps []float64
	for i := 1; i < len(values); i++ {
		steps = append(steps, math.Abs(values[i]-values[i-1]))
	}
	return Quantile(steps, 0.5) / middle, true
}

// reference returns the noise of the run's references of a unit, or of all of them if none is like it.
func (r *Report) reference(unit string) (noise float64, known bool) {
	like := map[string]string{"ms/s": "µs"}
	if same, ok := like[unit]; ok {
		unit = same
	}
	var all float64
	for _, f := range r.References {
		n, ok := spread(f.Values)
		if ok && f.Unit == unit {
			return n, true
		}
		all, known = max(all, n), known || ok
	}
	return all, known
}

// percent formats a noise for people.
func percent(noise float64) string { return fmt.Sprintf("±%.0f %%", math.Ceil(100*noise)) }
