package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ranFor is the CPU time of a process to the nanosecond, as the kernel's scheduler counts it. An idle node uses less in
// a while than one tick of the other clock for each of its and the database's processes.
func ranFor(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU time of %s: %w", thread, err)
		}
		sum += time.Duration(ns)
	}
	if len(threads) == 0 {
		return cpuOf(pid) // the kernel counts ticks only
	}
	return sum, nil
}

// databaseRanFor is the same for the server and its processes; those that ended count in ticks.
func (e *Env) databaseRanFor() (time.Duration, error) {
	for {
		before, err := timesOf(e.ServerPID)
		if err != nil {
			return 0, err
		}
		sum, err := ranFor(e.ServerPID)
		if err != nil {
			return 0, err
		}
		processes, err := os.ReadDir("/proc")
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		for _, p := range processes {
			pid, err := strconv.Atoi(p.Name())
			if err != nil {
				continue
			}
			if t, err := timesOf(pid); err != nil || t.parent != e.ServerPID {
				continue
			}
			ran, err := ranFor(pid)
			if errors.Is(err, os.ErrNotExist) {
				continue // it has just ended
			}
			if err != nil {
				return 0, err
			}
			sum += ran
		}
		after, err := timesOf(e.ServerPID)
		if err != nil {
			return 0, err
		}
		if before.children == after.children { // else one ended meanwhile, and would be counted twice or never
			return sum + after.children, nil
		}
	}
}

// idleFor is how long nothing is done.
func (e *Env) idleFor() time.Duration {
	if e.Quick {
		return 6 * time.Second
	}
	return 20 * time.Second
}

// perSecond is what grows of a counter while nothing is done, in ms for each second.
func perSecond(ctx context.Context, lasts time.Duration, counters ...func() (time.Duration, error)) ([]float64, error) {
	began := time.Now()
	grown := make([]float64, len(counters))
	for i, counter := range counters {
		before, err := counter()
		if err != nil {
			return nil, err
		}
		grown[i] = -millis(before)
	}
	sleep(ctx, lasts)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for i, counter := range counters {
		after, err := counter()
		if err != nil {
			return nil, err
		}
		grown[i] = (grown[i] + millis(after)) / time.Since(began).Seconds()
	}
	return grown, nil
}

// idle measures what a node costs while nobody wants anything.
func idle(ctx context.Context, e *Env) ([]Figure, error) { return idleOf(ctx, e, e.idleFor()) }

func idleOf(ctx context.Context, e *Env, lasts time.Duration) ([]Figure, error) {
	if _, err := cpuOf(os.Getpid()); errors.Is(err, errNoCPU) {
		e.log("left out: %v", err)
		return nil, nil
	}
	node := Figure{Key: "idle_node", Name: "An idle node's CPU", Unit: "ms/s", Goal: atMost(2), Note: "one task, nobody waits"}
	database := Figure{Key: "idle_database", Name: "The database's CPU for an idle node", Unit: "ms/s", Goal: atMost(1)}
	var alone Figure
	for round := range e.Rounds {
		i, err := e.idleOnce(ctx, lasts)
		if err != nil {
			return nil, fmt.Errorf("idle: %w", err)
		}
		node.Values = append(node.Values, i.node)
		if e.ServerPID != 0 {
			alone.Values, database.Values = append(alone.Values, i.alone), append(database.Values, i.database-i.alone)
		}
		e.log("round %d of %d: node %.2f ms/s, database %.2f, without it %.2f", round+1, e.Rounds, i.node, i.database, i.alone)
	}
	if e.ServerPID == 0 {
		return []Figure{node}, nil // the server's processes are not known
	}
	database.Note = fmt.Sprintf("with it, less the %.2f ms/s that the database uses by itself", alone.Median())
	return []Figure{node, database}, nil
}

// idling is the CPU that parts use, in ms for each second.
type idling struct{ node, database, alone float64 }

func (e *Env) idleOnce(ctx context.Context, lasts time.Duration) (i idling, err error) {
	server := func() (time.Duration, error) { return 0, nil }
	if e.ServerPID != 0 {
		server = e.databaseRanFor
	}
	sleep(ctx, e.settle()) // what was dropped before may still be cleaned up
	grown, err := perSecond(ctx, lasts, server)
	if err != nil {
		return i, err
	}
	i.alone = grown[0]
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return i, err
	}
	defer leave()
	if err := s.makeItems(ctx, 1000); err != nil {
		return i, err
	}
	if err := s.task(ctx, "idle", itemsQuery, nil); err != nil {
		return i, err
	}
	sleep(ctx, e.settle())
	grown, err = perSecond(ctx, lasts, func() (time.Duration, error) { return ranFor(s.nodes.PID(0)) }, server)
	if err != nil {
		return i, err
	}
	i.node, i.database = grown[0], grown[1]
	return i, nil
}
