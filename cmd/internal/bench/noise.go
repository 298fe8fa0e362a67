package bench

import (
	"context"
	"fmt"
	"time"

	"getwork/cmd/internal/bench/stage"
)

// noiseFigures are the references: they are measured at the start of a run and again at its end. By how much they differ is the
// machine's noise.
func noiseFigures() []*Figure {
	return []*Figure{
		{Key: "noise_rate", Name: "clicks of 64 users", Unit: "clicks/s"},
		{Key: "noise_cpu", Name: "CPU of such a click, database and node", Unit: "µs"},
		{Key: "noise_time", Name: "one click on an idle system, p50", Unit: "ms"},
	}
}

func noise(ctx context.Context, r *Rounds) error {
	c, err := r.FreshClicks(ctx, stage.FreshLoad{Users: 64, Nodes: 1, Items: stage.Sized(r.Env, 100_000, 200_000), Window: stage.Sized(r.Env, 1*time.Second, 3*time.Second)})
	if err != nil {
		return fmt.Errorf("measure the noise: %w", err)
	}
	r.Add("noise_rate", c.Rate)
	if cpu := c.Database + c.Nodes; cpu > 0 {
		r.Add("noise_cpu", cpu)
	}
	times, err := singleClicks(ctx, r.Env, stage.Sized(r.Env, 50, 200))
	if err != nil {
		return fmt.Errorf("measure the noise: %w", err)
	}
	r.Add("noise_time", Quantile(times[0], 0.5))
	return nil
}
