// Package cputime reads from /proc how much CPU time a process, or a PostgreSQL server with all its processes, has
// used. It works on Linux only.
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

// ErrUnknown is returned on systems without /proc.
var ErrUnknown = errors.New("the CPU time of processes is read from /proc, which this system does not have")

// tick is the unit of /proc/PID/stat, on every platform that Go runs on.
const tick = 10 * time.Millisecond

// stat is the part of /proc/PID/stat that this package uses.
type stat struct {
	parent int
	own    time.Duration // used by the process itself, in whole ticks
	reaped time.Duration // used by children that have ended and were waited for
}

func readStat(pid int) (s stat, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if _, self := os.Stat("/proc/self/stat"); self != nil {
			return s, ErrUnknown
		}
		return s, fmt.Errorf("read CPU time: %w", err)
	}
	// The second field is the name in brackets, which may hold any character.
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

// Process returns the CPU time that a living process has used so far. It is exact to the nanosecond if the kernel
// counts so, because an idle node uses less than a tick in seconds.
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
	return max(sum, s.own), nil // ended threads are counted only in ticks
}

// Server returns the CPU time that a PostgreSQL server has used so far: its first process and all its children,
// including those that have ended.
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
			if used, err := Process(pid); err == nil { // otherwise it has just ended
				sum += used
			}
		}
		after, err := readStat(postmaster)
		if err != nil {
			return 0, err
		}
		if before.reaped == after.reaped { // otherwise a child ended meanwhile, and would be counted twice or not at all
			return sum + after.reaped, nil
		}
	}
}

// Postmaster returns the id of the first process of the server that conn is connected to. It returns 0 if that process
// is not certainly on this machine: a process with the same id can exist here and on another machine or in another
// container, but not with the same title.
func Postmaster(ctx context.Context, conn *pgx.Conn) (int, error) {
	var user string
	var pid int
	if err := conn.QueryRow(ctx, `select current_user, pg_backend_pid()`).Scan(&user, &pid); err != nil {
		return 0, fmt.Errorf("read the server's process id: %w", err)
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
