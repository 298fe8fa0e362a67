package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// errNoMemory: only Linux tells it where we look.
var errNoMemory = errors.New("the memory of processes is read from /proc, which this system does not have")

// residentOf is how much memory of a process is resident, in KiB.
func residentOf(pid int) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat("/proc/self/status"); err != nil {
			return 0, errNoMemory
		}
	}
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range bytes.Lines(text) {
		rest, found := bytes.CutPrefix(line, []byte("VmRSS:"))
		fields := bytes.Fields(rest)
		if !found || len(fields) == 0 {
			continue
		}
		return strconv.ParseFloat(string(fields[0]), 64) // "kB" behind it
	}
	return 0, fmt.Errorf("read memory: /proc/%d/status does not have it", pid)
}

// settle is how long a process is left alone before its memory is read.
func (e *Env) settle() time.Duration {
	if e.Quick {
		return 2 * time.Second
	}
	return 5 * time.Second
}

// memory measures what a waiting user costs a node's memory.
func memory(ctx context.Context, e *Env) ([]Figure, error) { return memoryOf(ctx, e, e.crowdSize()) }

func memoryOf(ctx context.Context, e *Env, users int) ([]Figure, error) {
	if _, err := residentOf(os.Getpid()); err != nil {
		e.log("left out: %v", err)
		return nil, nil
	}
	waiting := Figure{Key: "memory", Name: "A node's memory for each of " + thousands(users) + " waiting users", Unit: "KiB", Goal: &Goal{AtMost: new(22.0), Absolute: true},
		Note: "resident, with socket and pending request, less what the node had before; a few seconds after the last click"}
	after := Figure{Key: "memory_after", Name: "the same, a few seconds after all were told of their items", Unit: "KiB"}
	raw := Figure{Key: "memory_raw", Name: "a raw TCP connection in a Go process, with a goroutine that reads", Unit: "KiB"}
	for round := range e.Rounds {
		m, err := e.memoryOnce(ctx, users)
		if err != nil {
			return nil, fmt.Errorf("memory of %s waiting users: %w", thousands(users), err)
		}
		least, err := e.rawMemory(ctx, users)
		if err != nil {
			return nil, err
		}
		waiting.Values, after.Values, raw.Values = append(waiting.Values, m.waiting), append(after.Values, m.after), append(raw.Values, least)
		e.log("round %d of %d: %.1f KiB a user, %.1f after the push, raw TCP %.1f", round+1, e.Rounds, m.waiting, m.after, least)
	}
	waiting.Limit = &raw
	return []Figure{waiting, after}, nil
}

// resident is how much more memory a node has for each user, in KiB.
type resident struct{ waiting, after float64 }

func (e *Env) memoryOnce(ctx context.Context, users int) (m resident, err error) {
	if err := checkFiles(users); err != nil {
		return m, err
	}
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return m, err
	}
	defer leave()
	before, err := residentOf(s.nodes.PID(0))
	if err != nil {
		return m, err
	}
	r, err := s.enter(ctx, users)
	if err != nil {
		return m, err
	}
	defer r.crowd.close()
	if err := r.wait(ctx); err != nil {
		return m, err
	}
	each := func() (float64, error) {
		sleep(ctx, e.settle())
		now, err := residentOf(s.nodes.PID(0))
		return (now - before) / float64(users), err
	}
	if m.waiting, err = each(); err != nil {
		return m, err
	}
	if _, err := r.push(ctx); err != nil {
		return m, err
	}
	if m.after, err = each(); err != nil {
		return m, err
	}
	return m, r.check(ctx)
}

// fewestRaw is how many raw connections stand out of what a process's memory changes by of itself: 3 MiB of them,
// where its collector and the system give and take up to 1.
const fewestRaw = 1_000

// rawMemory is the limit: what a connection costs that nothing is known of, of at least n of them.
func (e *Env) rawMemory(ctx context.Context, n int) (float64, error) {
	n = max(n, fewestRaw)
	peer, err := e.startRaw(ctx)
	if err != nil {
		return 0, err
	}
	defer peer.stop()
	before, err := residentOf(peer.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	conns, err := peer.connect(ctx, n)
	if err != nil {
		return 0, err
	}
	defer closeAll(conns)
	sleep(ctx, e.settle())
	after, err := residentOf(peer.cmd.Process.Pid)
	return (after - before) / float64(n), err
}
