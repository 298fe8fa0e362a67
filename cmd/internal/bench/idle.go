package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"getwork/cmd/internal/cputime"
)

func idleFigures(*Env) []*Figure {
	return []*Figure{
		{Key: "idle_node", Name: "An idle node's CPU", Unit: "ms/s", Goal: atMost(2), Note: "one task, nobody waits"},
		{Key: "idle_database", Name: "The database's CPU for an idle node", Unit: "ms/s", Goal: atMost(1)},
	}
}

// idle measures what a node costs while nobody asks for work.
func idle(ctx context.Context, r *rounds) error {
	return idleFor(ctx, r, sized(r.Env, 6*time.Second, 20*time.Second))
}

func idleFor(ctx context.Context, r *rounds, lasts time.Duration) error {
	if _, err := cputime.Process(os.Getpid()); errors.Is(err, cputime.ErrUnknown) {
		r.log("left out: %v", err)
		return nil
	}
	var all []idleRound
	for range r.each() {
		err := r.on(ctx, 0, func(s *stage) error {
			round, err := s.idleRound(ctx, lasts)
			if err != nil {
				return err
			}
			r.add("idle_node", (round.with[0].nodes+round.with[1].nodes)/2)
			if r.ServerPID != 0 {
				r.add("idle_database", round.difference())
				all = append(all, round)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("idle: %w", err)
		}
	}
	r.figure("idle_database").compareIdle(all)
	return nil
}

// idleRound is what is used on the same tables without a node, with one twice, and without it again. A database that
// still tidies up after earlier tables gets quieter meanwhile, which favours neither.
type idleRound struct{ alone, with [2]cost }

func (s *stage) idleRound(ctx context.Context, lasts time.Duration) (r idleRound, err error) {
	if err := s.makeItems(ctx, 1000); err != nil {
		return r, err
	}
	if r.alone[0], err = s.idling(ctx, lasts); err != nil {
		return r, err
	}
	if err := s.start(ctx, 1); err != nil {
		return r, err
	}
	if err := s.task(ctx, "idle", itemsQuery, 1000, 0); err != nil {
		return r, err
	}
	for i := range r.with {
		if r.with[i], err = s.idling(ctx, lasts); err != nil {
			return r, err
		}
	}
	s.kill()
	r.alone[1], err = s.idling(ctx, lasts)
	return r, err
}

// difference returns what the database uses more with a node than without.
func (r idleRound) difference() float64 {
	return (r.with[0].database + r.with[1].database - r.alone[0].database - r.alone[1].database) / 2
}

// noise returns by how much the same thing differed within the round.
func (r idleRound) noise() float64 {
	return max(math.Abs(r.with[0].database-r.with[1].database), math.Abs(r.alone[0].database-r.alone[1].database))
}

// compareIdle sets the noise of the rounds' differences. If the database seems to use less with a node, noise is all
// that was measured, and there is no verdict.
func (f *Figure) compareIdle(all []idleRound) {
	if len(all) == 0 {
		return
	}
	var alone, off []float64
	for _, r := range all {
		alone, off = append(alone, r.alone[0].database, r.alone[1].database), append(off, r.noise())
	}
	noise := quantile(off, 0.5)
	f.Note = fmt.Sprintf("with it, less the %.2f ms/s that the database uses by itself; the same differs by %.2f ms/s", quantile(alone, 0.5), noise)
	if f.Median() <= 0 {
		f.Goal = nil
		f.Note += ", and the difference is below that noise"
		return
	}
	share := noise / f.Median()
	f.Noise = &share
}

// idling returns the CPU that is used while nothing is done, in ms per second.
func (s *stage) idling(ctx context.Context, lasts time.Duration) (c cost, err error) {
	sleep(ctx, settle(s.Env)) // PostgreSQL may still be tidying up after earlier tables
	before, err := s.usage()
	if err != nil {
		return c, err
	}
	sleep(ctx, lasts)
	after, err := s.usage()
	if err != nil {
		return c, err
	}
	seconds := after.at.Sub(before.at).Seconds()
	return cost{database: millis(after.database-before.database) / seconds, nodes: millis(after.nodes-before.nodes) / seconds}, context.Cause(ctx)
}
