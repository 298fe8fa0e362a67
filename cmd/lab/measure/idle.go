package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
	"getwork/cmd/internal/cputime"
)

func idleFigures(*stage.Env) []*bench.Figure {
	return []*bench.Figure{
		{Key: "idle_node", Name: "An idle node's CPU", Unit: "ms/s", Goal: bench.AtMost(2), Note: "one task, nobody waits"},
		{Key: "idle_database", Name: "The database's CPU for an idle node", Unit: "ms/s", Goal: bench.AtMost(1)},
	}
}

// idle measures what a node costs while nobody asks for work.
func idle(ctx context.Context, r *bench.Rounds) error {
	return idleFor(ctx, r, stage.Sized(r.Env, 6*time.Second, 20*time.Second))
}

func idleFor(ctx context.Context, r *bench.Rounds, lasts time.Duration) error {
	if _, err := cputime.Process(os.Getpid()); errors.Is(err, cputime.ErrUnknown) {
		r.Logf("left out: %v", err)
		return nil
	}
	var all []idleRound
	for range r.Each() {
		err := r.On(ctx, 0, func(s *stage.Stage) error {
			round, err := takeIdle(ctx, s, lasts)
			if err != nil {
				return err
			}
			r.Add("idle_node", (round.with[0].Nodes+round.with[1].Nodes)/2)
			if r.ServerPID != 0 {
				r.Add("idle_database", round.difference())
				all = append(all, round)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("idle: %w", err)
		}
	}
	compareIdle(r.Figure("idle_database"), all)
	return nil
}

// idleRound is what is used on the same tables without a node, with one twice, and without it again. A database that
// still tidies up after earlier tables gets quieter meanwhile, which favours neither.
type idleRound struct{ alone, with [2]stage.Cost }

func takeIdle(ctx context.Context, s *stage.Stage, lasts time.Duration) (r idleRound, err error) {
	if err := s.MakeItems(ctx, 1000); err != nil {
		return r, err
	}
	if r.alone[0], err = idling(ctx, s, lasts); err != nil {
		return r, err
	}
	if err := s.Start(ctx, 1); err != nil {
		return r, err
	}
	if err := s.Task(ctx, "idle", stage.ItemsQuery, 1000, 0); err != nil {
		return r, err
	}
	for i := range r.with {
		if r.with[i], err = idling(ctx, s, lasts); err != nil {
			return r, err
		}
	}
	s.Kill()
	r.alone[1], err = idling(ctx, s, lasts)
	return r, err
}

// difference returns what the database uses more with a node than without.
func (r idleRound) difference() float64 {
	return (r.with[0].Database + r.with[1].Database - r.alone[0].Database - r.alone[1].Database) / 2
}

// noise returns by how much the same thing differed within the round.
func (r idleRound) noise() float64 {
	return max(math.Abs(r.with[0].Database-r.with[1].Database), math.Abs(r.alone[0].Database-r.alone[1].Database))
}

// compareIdle sets the noise of the rounds' differences. If the database seems to use less with a node, noise is all
// that was measured, and there is no verdict.
func compareIdle(f *bench.Figure, all []idleRound) {
	if len(all) == 0 {
		return
	}
	var alone, off []float64
	for _, r := range all {
		alone, off = append(alone, r.alone[0].Database, r.alone[1].Database), append(off, r.noise())
	}
	noise := bench.Quantile(off, 0.5)
	f.Note = fmt.Sprintf("with it, less the %.2f ms/s that the database uses by itself; the same differs by %.2f ms/s", bench.Quantile(alone, 0.5), noise)
	if f.Median() <= 0 {
		f.Goal = nil
		f.Note += ", and the difference is below that noise"
		return
	}
	share := noise / f.Median()
	f.Noise = &share
}

// idling returns the CPU that is used while nothing is done, in ms per second.
func idling(ctx context.Context, s *stage.Stage, lasts time.Duration) (c stage.Cost, err error) {
	stage.Sleep(ctx, settle(s.Env)) // PostgreSQL may still be tidying up after earlier tables
	before, err := s.Usage()
	if err != nil {
		return c, err
	}
	stage.Sleep(ctx, lasts)
	after, err := s.Usage()
	if err != nil {
		return c, err
	}
	seconds := after.At.Sub(before.At).Seconds()
	return stage.Cost{Database: stage.Millis(after.Database-before.Database) / seconds, Nodes: stage.Millis(after.Nodes-before.Nodes) / seconds}, context.Cause(ctx)
}
