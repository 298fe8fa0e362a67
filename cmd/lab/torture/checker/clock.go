package checker

import (
	"cmp"
	"math"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// clock says when, by the harness's clock, the database's clock showed some time. The database's clock may have been
// set during the run, and so may have shown the same time more than once, or never. What clock returns holds for every
// such moment.
type clock struct {
	stretches []stretch // in order; the clock was set between them
	blind     bool      // the clock was set more often than can be followed: nothing is known
}

// stretch is a time in which the clock was not set.
type stretch struct {
	ticks       []*history.Tick // one or more
	from, until history.Clock   // it began no earlier than from, and ended by until
}

// Two clocks may drift a little against each other; a larger difference is a jump.
const (
	drift = 0.001
	slack = 5 * time.Millisecond
)

// jump is the kind of the fault that sets the clock, at one moment between Began and Ended.
const jump = "clock"

// newClock computes the clock from the ticks and from the jumps among the faults; end is the clock's time when the
// tables were read.
func newClock(ticks []*history.Tick, faults []*history.Fault, end time.Time) clock {
	var jumps []*history.Fault
	for _, f := range faults {
		if f.Kind == jump {
			jumps = append(jumps, f)
		}
	}
	slices.SortStableFunc(jumps, func(a, b *history.Fault) int { return cmp.Compare(a.Began, b.Began) })
	ticks = slices.DeleteFunc(slices.Clone(ticks), func(k *history.Tick) bool { // they may be from before or after the jump
		return slices.ContainsFunc(jumps, func(j *history.Fault) bool { return k.Began <= j.Ended && j.Began <= k.Ended })
	})
	slices.SortStableFunc(ticks, func(a, b *history.Tick) int { return cmp.Compare(a.Began, b.Began) })
	if len(ticks) == 0 {
		return clock{blind: len(jumps) > 0}
	}
	c := clock{stretches: []stretch{{ticks: ticks[:1], from: math.MinInt64, until: math.MaxInt64}}}
	for i := 1; i < len(ticks); i++ {
		a, b, last := ticks[i-1], ticks[i], &c.stretches[len(c.stretches)-1]
		from, until, set := a.Began, b.Ended, !steady(a, b)
		n := 0
		for ; n < len(jumps) && jumps[n].Ended < b.Began; n++ {
			from, until, set = jumps[n].Began, jumps[n].Ended, true
		}
		jumps = jumps[n:]
		c.blind = c.blind || n > 1 || n > 0 && from < a.Ended
		if set {
			last.until = until
			c.stretches = append(c.stretches, stretch{ticks: []*history.Tick{b}, from: from, until: math.MaxInt64})
		} else {
			last.ticks = append(last.ticks, b)
		}
	}
	c.blind = c.blind || len(jumps) > 0
	if first, last := &c.stretches[0], &c.stretches[len(c.stretches)-1]; first != last { // nothing was written before the run or after it
		first.from = 0
		_, by := last.shows(end)
		last.until = max(by, last.ticks[len(last.ticks)-1].Ended)
	}
	return c
}

// steady reports whether the same time passed by both clocks between two ticks.
func steady(a, b *history.Tick) bool {
	passed, least, most := b.Now.Sub(a.Now), b.Began-a.Ended, b.Ended-a.Began
	return passed >= scale(least, 1-drift)-slack && passed <= scale(most, 1+drift)+slack
}

// jumped reports whether the clock was set during the run, so that times in the tables can't be compared with each
// other.
func (c clock) jumped() bool { return c.blind || len(c.stretches) > 1 }

// jumps returns how often the clock was set, as far as is known.
func (c clock) jumps() int { return max(0, len(c.stretches)-1) }

// after returns a moment before which the database's clock did not show that time; false means unknown.
func (c clock) after(at time.Time) (from history.Clock, known bool) {
	from = math.MaxInt64
	for i := range c.stretches {
		s := &c.stretches[i]
		if least, most := s.shows(at); least <= s.until && most >= s.from {
			from, known = min(from, max(least, s.from)), true
		}
	}
	return from, known && !c.blind
}

// by returns a moment after which the clock did not show that time any more; false means unknown.
func (c clock) by(at time.Time) (to history.Clock, known bool) {
	to = math.MinInt64
	for i := range c.stretches {
		s := &c.stretches[i]
		if least, most := s.shows(at); least <= s.until && most >= s.from {
			to, known = max(to, min(most, s.until)), true
		}
	}
	return to, known && !c.blind
}

// reaches returns a moment before which, since another, the clock showed neither that time nor a later one; false means
// unknown. The clock may have jumped over that time.
func (c clock) reaches(at time.Time, since history.Clock) (history.Clock, bool) {
	for i := range c.stretches {
		s := &c.stretches[i]
		least, _ := s.shows(at)
		if least = max(least, s.from, since); least <= s.until {
			return least, !c.blind
		}
	}
	return forever, !c.blind && len(c.stretches) > 0 // not before the end
}

// least returns a time before all times that the clock showed between two moments; false means unknown.
func (c clock) least(from, to history.Clock) (at time.Time, known bool) {
	for i := range c.stretches {
		if s := &c.stretches[i]; s.from <= to && s.until >= from {
			if early, _ := s.shown(max(from, s.from)); !known || early.Before(at) {
				at, known = early, true
			}
		}
	}
	return at, known && !c.blind
}

// most returns a time after all times that the clock showed between two moments; false means unknown.
func (c clock) most(from, to history.Clock) (at time.Time, known bool) {
	for i := range c.stretches {
		if s := &c.stretches[i]; s.from <= to && s.until >= from {
			if _, late := s.shown(min(to, s.until)); !known || late.After(at) {
				at, known = late, true
			}
		}
	}
	return at, known && !c.blind
}

// shows returns when the clock would show that time if the stretch were long enough.
func (s *stretch) shows(at time.Time) (least, most history.Clock) {
	i, _ := slices.BinarySearchFunc(s.ticks, at, func(k *history.Tick, at time.Time) int {
		if k.Now.After(at) {
			return 1
		}
		return -1
	})
	least, most = math.MinInt64, math.MaxInt64
	if i > 0 { // the last tick that is not later
		k := s.ticks[i-1]
		least, most = k.Began+scale(at.Sub(k.Now), 1-drift)-slack, k.Ended+scale(at.Sub(k.Now), 1+drift)+slack
	}
	if i < len(s.ticks) {
		k := s.ticks[i]
		least = max(least, k.Began-scale(k.Now.Sub(at), 1+drift)-slack)
		most = min(most, k.Ended-scale(k.Now.Sub(at), 1-drift)+slack)
	}
	return least, most
}

// shown returns bounds for the clock's time at some moment of the stretch.
func (s *stretch) shown(at history.Clock) (least, most time.Time) {
	i, _ := slices.BinarySearchFunc(s.ticks, at, func(k *history.Tick, at history.Clock) int { return cmp.Compare(k.Began, at) })
	if i > 0 { // the last tick that began before
		k := s.ticks[i-1]
		least = k.Now.Add(min(scale(at-k.Ended, 1-drift), scale(at-k.Ended, 1+drift)) - slack) // it may not have ended yet
		most = k.Now.Add(scale(at-k.Began, 1+drift) + slack)
	}
	if i < len(s.ticks) {
		k := s.ticks[i]
		early := k.Now.Add(-scale(k.Ended-at, 1+drift) - slack)
		late := k.Now.Add(-scale(k.Began-at, 1-drift) + slack)
		if i == 0 || early.After(least) {
			least = early
		}
		if i == 0 || late.Before(most) {
			most = late
		}
	}
	return least, most
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }
