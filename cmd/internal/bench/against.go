package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"getwork/cmd/internal/bench/stage"
)

// Against returns the measurement of getwork beside another executable.
func Against(other string) Measurement {
	return Measurement{Name: "against", Help: "CPU per click compared with another getwork's, in turn, and how much each differs from itself",
		Figures: func(*stage.Env) []*Figure { return Ratios(slices.Concat(againstParts(64), againstParts(256))) },
		Take:    func(ctx context.Context, r *Rounds) error { return against(ctx, r, other) }}
}

func againstParts(users int) []Part[stage.Cost] {
	key, name := fmt.Sprintf("against_%d_cpu_", users), " CPU for a click, %s, "+fmt.Sprintf("%d users", users)
	of := func(key, name string, of func(stage.Cost) float64) Part[stage.Cost] {
		return Part[stage.Cost]{Key: key, Name: fmt.Sprintf(name, "this program to the other one"), Same: fmt.Sprintf(name, "the same program twice"), Goal: AtMost(1.03), Of: of}
	}
	return []Part[stage.Cost]{
		of(key+"database", "The database's"+name, func(c stage.Cost) float64 { return c.Database }),
		of(key+"node", "The node's"+name, func(c stage.Cost) float64 { return c.Nodes }),
	}
}

// against compares the CPU per click of getwork with that of another executable.
func against(ctx context.Context, r *Rounds, other string) error {
	for range r.Each() {
		for _, users := range []int{64, 256} {
			with := func(binary string) func(ctx context.Context) (stage.Cost, error) {
				e := *r.Env
				e.Binary = binary
				l := stage.FreshLoad{Users: users, Nodes: 1, Items: stage.Sized(r.Env, 100_000, 400_000), Window: stage.Sized(r.Env, 2*time.Second, 10*time.Second)}
				return func(ctx context.Context) (stage.Cost, error) { return e.FreshClicks(ctx, l) }
			}
			if err := Compare(ctx, r, againstParts(users), with(r.Binary), with(other)); err != nil {
				return err
			}
		}
	}
	return nil
}
