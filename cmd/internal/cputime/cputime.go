// Package cputime reads from /proc how much CPU time a process has used, and a PostgreSQL server with all of its
// processes. Only Linux has it.
package cputime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrUnknown is returned where the system does not tell.
var ErrUnknown = errors.New("the CPU time of processes is read from /proc, which this system does not have")

// tick is the unit of /proc/PID/stat, on every platform that Go runs on.
const tick = 10 * time.Millisecond

// stat is what /proc/PID/stat says of a process.
type stat struct {
	parent int
	own    time.Duration // used by itself, in whole ticks
	reaped time.Duration // used by those of its children that have ended and were waited for
}

func readStat(pid int) (s stat, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if _, self := os.Stat("/proc/self/stat"); self != nil {
			return s, ErrUnknown
		}
		return s, fmt.Errorf("read CPU time: %w", err)
	}
	// The second field is the name in brackets, which may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return s, fmt.Errorf("read CPU time: /proc/%d/stat has %d fields", pid, len(fields))
	}
	var n [5]int
	for i, field := range []int{1, 11, 12, 13, 14} { // ppid, utime, stime, cutime, cstime
		if n[i], err = strconv.Atoi(fields[field]); err != nil {
			return s, fmt.Errorf("read CPU time: %w", err)
		}
	}
	return stat{parent: n[0], own: time.Duration(n[1]+n[2]) * tick, reaped: time.Duration(n[3]+n[4]) * tick}, nil
}

// Process is the CPU time that a living process has used so far, to the nanosecond where the kernel counts so: an idle
// node uses less than a tick in seconds.
func Process(pid int) (time.Duration, error) {
	s, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has just ended
		}
		used, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(used, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU time of %s: %w", thread, err)
		}
		sum += time.Duration(ns)
	}
	return max(sum, s.own), nil // threads that have ended are counted in ticks alone
}

// Server is the CPU time that a PostgreSQL has used so far: its first process, that one's children, and those that have
// ended.
func Server(postmaster int) (time.Duration, error) {
	for {
		before, err := readStat(postmaster)
		if err != nil {
			return 0, err
		}
		sum, err := Process(postmaster)
		if err != nil {
			return 0, err
		}
		processes, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return 0, err
		}
		for _, dir := range processes {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			if s, err := readStat(pid); err != nil || s.parent != postmaster {
				continue
			}
			if used, err := Process(pid); err == nil { // else it has just ended
				sum += used
			}
		}
		after, err := readStat(postmaster)
		if err != nil {
			return 0, err
		}
		if before.reaped == after.reaped { // else one ended meanwhile, and would be counted twice or never
			return sum + after.reaped, nil
		}
	}
}

// Postmaster is the first process of the server that a connection goes to, 0 if that is not known to be on this machine:
// another machine's, or another container's, process may have the same number as one here, but not its title.
func Postmaster(ctx context.Context, conn *pgx.Conn) (int, error) {
	var user string
	var pid int
	if err := conn.QueryRow(ctx, `select current_user, pg_backend_pid()`).Scan(&user, &pid); err != nil {
		return 0, fmt.Errorf("ask for the server's process: %w", err)
	}
	host := conn.Config().Host
	if !strings.HasPrefix(host, "/") && !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host) {
		return 0, nil
	}
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.HasPrefix(string(title), "postgres: ") || !strings.Contains(string(title), " "+user+" ") {
		return 0, nil
	}
	s, err := readStat(pid)
	if err != nil {
		return 0, nil
	}
	return s.parent, nil
}
