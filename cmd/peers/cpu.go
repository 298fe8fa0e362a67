package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// tick is the unit of /proc/PID/stat, whatever the kernel's own is.
const tick = 10 * time.Millisecond

// processStat is what /proc/PID/stat says of a process.
type processStat struct {
	name   string
	parent int
	own    time.Duration // used by itself
	reaped time.Duration // used by those of its children that have ended
}

func readStat(pid int) (processStat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, err
	}
	// The name stands in brackets, and may have brackets and spaces in it.
	first, last := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if first < 0 || last < first {
		return processStat{}, fmt.Errorf("/proc/%d/stat is not understood", pid)
	}
	fields := strings.Fields(string(text[last+1:]))
	if len(fields) < 15 {
		return processStat{}, fmt.Errorf("/proc/%d/stat is not understood", pid)
	}
	var numbers [5]int
	for i, field := range []string{fields[1], fields[11], fields[12], fields[13], fields[14]} {
		if numbers[i], err = strconv.Atoi(field); err != nil {
			return processStat{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return processStat{
		name:   string(text[first+1 : last]),
		parent: numbers[0],
		own:    time.Duration(numbers[1]+numbers[2]) * tick,
		reaped: time.Duration(numbers[3]+numbers[4]) * tick,
	}, nil
}

// processCPU is what a living process has used. An idle one uses less than a tick in seconds, so its threads' schedstat
// is read where the kernel has it, which counts in nanoseconds, but not the threads that have ended.
func processCPU(pid int) (time.Duration, error) {
	stat, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return stat.own, nil
	}
	var sum time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return 0, err
		}
		used, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(used, 10, 64)
		if err != nil {
			return stat.own, nil
		}
		sum += time.Duration(n)
	}
	return max(sum, stat.own), nil
}

// serverCPU is what a PostgreSQL has used: its first process, that one's children, and those that have ended.
func serverCPU(postmaster int) (time.Duration, error) {
	stat, err := readStat(postmaster)
	if err != nil {
		return 0, err
	}
	sum, err := processCPU(postmaster)
	if err != nil {
		return 0, err
	}
	sum += stat.reaped
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range processes {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if stat, err := readStat(pid); err != nil || stat.parent != postmaster {
			continue // it has just ended, or is none of ours
		}
		if used, err := processCPU(pid); err == nil {
			sum += used
		}
	}
	return sum, nil
}

const selectBackend = `select pg_backend_pid(), session_user || ' ' || current_database()`

// postmasterOf finds the first process of the server that a connection goes to, 0 if it isn't on this machine or can't
// be seen. The id of a server elsewhere, or in a container, means some other process here: so what that one
// is called must fit, too.
func postmasterOf(ctx context.Context, conn *pgx.Conn) (int, error) {
	var pid int
	var title string
	if err := conn.QueryRow(ctx, selectBackend).Scan(&pid, &title); err != nil {
		return 0, fmt.Errorf("ask for the server's process: %w", err)
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(command), title) {
		return 0, nil
	}
	backend, err := readStat(pid)
	if err != nil {
		return 0, nil
	}
	if parent, err := readStat(backend.parent); err != nil || parent.name != backend.name {
		return 0, nil
	}
	return backend.parent, nil
}
