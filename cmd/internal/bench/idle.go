package bench

import (
	"context"
	"errors"
	"fmt"
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
	var alone []float64
	for range r.each() {
		before, err := r.idling(ctx, &stage{Env: r.Env}, lasts) // the database by itself
		if err != nil {
			return err
		}
		err = r.on(ctx, 1, func(s *stage) error {
			if err := s.makeItems(ctx, 1000); err != nil {
				return err
			}
			if err := s.task(ctx, "idle", itemsQuery, 1000, 0); err != nil {
				return err
			}
			with, err := r.idling(ctx, s, lasts)
			if err != nil {
				return err
			}
			r.add("idle_node", with.nodes)
			if r.ServerPID != 0 {
				r.add("idle_database", with.database-before.database)
				alone = append(alone, before.database)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("idle: %w", err)
		}
	}
	r.figure("idle_database").Note = fmt.Sprintf("with it, less the %.2f ms/s that the database uses by itself", quantile(alone, 0.5))
	return nil
}

// idling returns the CPU that is used while nothing is done, in ms per second.
func (e *Env) idling(ctx context.Context, s *stage, lasts time.Duration) (c cost, err error) {
	sleep(ctx, settle(e)) // PostgreSQL may still be tidying up after earlier tables
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
