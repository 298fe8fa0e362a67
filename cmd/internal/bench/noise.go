package bench

import (
	"context"
	"fmt"
	"time"
)

// References are figures that are measured at the start of a run and again at its end. By how much they differ is the
// machine's noise.
type References struct{ *rounds }

// References returns them before they are measured.
func (e *Env) References() References {
	return References{&rounds{Env: e, figures: []*Figure{
		{Key: "noise_rate", Name: "clicks of 64 users", Unit: "clicks/s"},
		{Key: "noise_cpu", Name: "CPU of such a click, database and node", Unit: "µs"},
		{Key: "noise_time", Name: "one click on an idle system, p50", Unit: "ms"},
	}}}
}

// Figures returns the references.
func (r References) Figures() []*Figure { return r.figures }

// Take measures them once.
func (r References) Take(ctx context.Context) error {
	c, err := r.freshClicks(ctx, freshLoad{users: 64, nodes: 1, items: sized(r.Env, 100_000, 200_000), window: sized(r.Env, 1*time.Second, 3*time.Second)})
	if err != nil {
		return fmt.Errorf("measure the noise: %w", err)
	}
	r.add("noise_rate", c.rate)
	if cpu := c.database + c.nodes; cpu > 0 {
		r.add("noise_cpu", cpu)
	}
	times, err := r.singleClicks(ctx, sized(r.Env, 50, 200))
	if err != nil {
		return fmt.Errorf("measure the noise: %w", err)
	}
	r.add("noise_time", quantile(times[0], 0.5))
	return nil
}
