package bench

import (
	"context"
	"math"
)

// Part is one figure of a comparison of two programs, or of two ways to run one. A T is what was measured of one of them.
type Part[T any] struct {
	Key, Name string
	Same      string // names the ratio of each to itself, which is the machine's noise
	Goal      *Goal
	Of        func(T) float64 // 0: unknown
}

// Ratios returns the figures of a comparison.
func Ratios[T any](parts []Part[T]) (all []*Figure) {
	for _, p := range parts {
		all = append(all, &Figure{Key: p.Key, Name: p.Name, Unit: "x", Goal: p.Goal}, &Figure{Key: p.Key + "_noise", Name: p.Same, Unit: "x"})
	}
	return all
}

// Compare makes one round. It takes a, b, b again and a again, so that a machine that gets slower or faster meanwhile favours neither.
func Compare[T any](ctx context.Context, r *Rounds, parts []Part[T], a, b func(context.Context) (T, error)) error {
	var costs [4]T
	for i, take := range []func(context.Context) (T, error){a, b, b, a} {
		var err error
		if costs[i], err = take(ctx); err != nil {
			return err
		}
	}
	for _, p := range parts {
		a, b, b2, a2 := p.Of(costs[0]), p.Of(costs[1]), p.Of(costs[2]), p.Of(costs[3])
		if min(a, b, b2, a2) == 0 { // unknown, as the database's CPU is if the server is on another machine
			continue
		}
		r.Add(p.Key, (a+a2)/(b+b2))
		r.Add(p.Key+"_noise", b2/b)
		r.Add(p.Key+"_noise", a2/a)
		var off []float64
		for _, v := range r.Figure(p.Key + "_noise").Values {
			off = append(off, math.Abs(v-1))
		}
		noise := Quantile(off, 0.5)
		r.Figure(p.Key).Noise = &noise
	}
	return nil
}
