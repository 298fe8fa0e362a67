package demo

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: a hundredth of a second on every platform that Go supports, whatever the
// kernel's own.
const tick = 10 * time.Millisecond

// cpuTime returns the CPU time that a process has used so far, including its living children and those that have ended
// and were reaped: for a postmaster, the whole server's. It returns false on systems that do not report it as Linux
// does.
func cpuTime(pid int) (time.Duration, bool) {
	for range 100 {
		before, ok := statOf(strconv.Itoa(pid))
		if !ok {
			return 0, false
		}
		paths, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			return 0, false
		}
		ticks := before.own + before.collected
		for _, path := range paths {
			child, ok := statOf(filepath.Base(filepath.Dir(path)))
			if ok && child.parent == pid {
				ticks += child.own + child.collected
			}
		}
		// A child that was reaped meanwhile was counted on one side or the other, or not at all.
		if after, ok := statOf(strconv.Itoa(pid)); ok && after.collected == before.collected {
			return time.Duration(ticks) * tick, true
		}
	}
	return 0, false
}

// stat is what /proc says about a process; times are in ticks.
type stat struct {
	parent         int
	own, collected int64
}

// statOf reads /proc/PID/stat, see proc(5). The name in brackets may hold any character; fields are counted after it.
func statOf(pid string) (s stat, ok bool) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return s, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return s, false
	}
	number := func(i int) int64 {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		ok = ok && err == nil
		return n
	}
	ok = true
	s.parent = int(number(1))
	s.own = number(11) + number(12)
	s.collected = number(13) + number(14)
	return s, ok
}
