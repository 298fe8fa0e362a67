package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// errNoCPU: only Linux tells it where we look.
var errNoCPU = errors.New("the CPU time of processes is read from /proc, which this system does not have")

// tick is the unit of CPU times in /proc, on every platform that Go runs on.
const tick = 10 * time.Millisecond

// times are a process's, as /proc tells them.
type times struct {
	parent   int
	own      time.Duration
	children time.Duration // of those that ended and were waited for
}

func timesOf(pid int) (times, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat("/proc/self/stat"); err != nil {
			return times{}, errNoCPU
		}
	}
	if err != nil {
		return times{}, fmt.Errorf("read CPU time: %w", err)
	}
	// The second field is the name in brackets, which may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return times{}, fmt.Errorf("read CPU time: /proc/%d/stat has %d fields", pid, len(fields))
	}
	var n [5]int
	for i, field := range []int{1, 11, 12, 13, 14} { // ppid, utime, stime, cutime, cstime
		if n[i], err = strconv.Atoi(fields[field]); err != nil {
			return times{}, fmt.Errorf("read CPU time: %w", err)
		}
	}
	return times{parent: n[0], own: time.Duration(n[1]+n[2]) * tick, children: time.Duration(n[3]+n[4]) * tick}, nil
}

// cpuOf is the CPU time that a process has used so far.
func cpuOf(pid int) (time.Duration, error) {
	t, err := timesOf(pid)
	return t.own, err
}

// databaseCPU is the CPU time that the server's processes have used so far, also those that have ended. It is 0 where
// the server is not on this machine.
func (e *Env) databaseCPU() (time.Duration, error) {
	if e.ServerPID == 0 {
		return 0, nil
	}
	for {
		before, err := timesOf(e.ServerPID)
		if err != nil {
			return 0, err
		}
		running, err := childrenOf(e.ServerPID)
		if err != nil {
			return 0, err
		}
		after, err := timesOf(e.ServerPID)
		if err != nil {
			return 0, err
		}
		if before.children == after.children { // else one ended meanwhile, and would be counted twice or never
			return after.own + after.children + running, nil
		}
	}
}

// childrenOf is the CPU time of a process's children.
func childrenOf(pid int) (time.Duration, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, errNoCPU
	}
	var sum time.Duration
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if t, err := timesOf(child); err == nil && t.parent == pid { // one that is gone does not count
			sum += t.own
		}
	}
	return sum, nil
}
