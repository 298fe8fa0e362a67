package measure

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
)

func memoryFigures(e *stage.Env) []*bench.Figure {
	raw := &bench.Figure{Key: "memory_raw", Name: "a raw TCP connection in a Go process, with a goroutine that reads", Unit: "KiB"}
	return []*bench.Figure{
		{Key: "memory", Name: "A node's memory for each of " + bench.Thousands(crowdSize(e)) + " waiting users", Unit: "KiB", Limit: raw, Goal: bench.Below(17),
			Note: "resident, with socket and pending request, less what the node had before; a few seconds after the last click"},
		{Key: "memory_after", Name: "the same, a few seconds after all were told of their items", Unit: "KiB", Goal: bench.Below(17)},
	}
}

// memory measures how much of a node's memory a waiting user takes.
func memory(ctx context.Context, r *bench.Rounds) error { return memoryOf(ctx, r, crowdSize(r.Env)) }

func memoryOf(ctx context.Context, r *bench.Rounds, users int) error {
	if resident(os.Getpid()) == 0 {
		r.Logf("left out: this system has no /proc with the memory of processes")
		return nil
	}
	for range r.Each() {
		err := onCrowd(ctx, r.Env, users, 1, func(c *crowd) error {
			take := func(key string) {
				stage.Sleep(ctx, settle(r.Env))
				r.Add(key, (resident(c.Nodes[0].PID())-c.idle)/float64(users))
			}
			take("memory")
			_, err := c.push(ctx)
			take("memory_after")
			return err
		})
		if err != nil {
			return fmt.Errorf("memory of %s waiting users: %w", bench.Thousands(users), err)
		}
		raw, err := rawMemory(ctx, r.Env, users)
		if err != nil {
			return err
		}
		r.Add("memory_raw", raw)
	}
	return nil
}

// settle is how long a process is left alone before its memory is read.
func settle(e *stage.Env) time.Duration { return stage.Sized(e, 2*time.Second, 5*time.Second) }

// resident returns a process's resident memory, in KiB, or 0 if it is unknown.
func resident(pid int) float64 { return memoryOfProcess(pid, "VmRSS") }

// peak returns the most that a process's resident memory ever was, in KiB, or 0 if it is unknown.
func peak(pid int) float64 { return memoryOfProcess(pid, "VmHWM") }

func memoryOfProcess(pid int, name string) float64 {
	kib, _ := strconv.ParseFloat(strings.TrimSuffix(bench.FromProc(strconv.Itoa(pid)+"/status", name), " kB"), 64)
	return kib
}
