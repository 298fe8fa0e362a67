package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"getwork/cmd/internal/bench/stage"
)

// Facts are the circumstances without which figures mean nothing.
type Facts struct {
	Date        string            `json:"date"`
	Command     string            `json:"command"`
	Getwork     string            `json:"getwork"`
	Go          string            `json:"go"`
	System      string            `json:"system"` // such as linux/amd64
	Processor   string            `json:"processor,omitempty"`
	Cores       int               `json:"cores"`
	MemoryMB    int               `json:"memory_mb,omitempty"`
	PostgreSQL  string            `json:"postgresql"`
	Settings    map[string]string `json:"settings"`
	Private     bool              `json:"private"`      // the bench started the database
	SameMachine bool              `json:"same_machine"` // the database is on the machine of the nodes and the load
	FdatasyncMs float64           `json:"fdatasync_ms"` // median time, for 8 KiB in the temporary folder
	Load        float64           `json:"load_average"` // of the last minute, before anything was measured
	Rounds      int               `json:"rounds"`
	Quick       bool              `json:"quick"`
}

// telling are the server's settings on which commits depend most.
var telling = []string{"fsync", "synchronous_commit", "full_page_writes", "wal_level", "shared_buffers", "max_wal_size", "max_connections", "jit"}

// readFacts reads the facts about getwork, machine and server. It leaves Private and Command to the caller.
func readFacts(ctx context.Context, e *stage.Env) (Facts, error) {
	getwork, language, err := builtFrom(ctx, e.Binary)
	if err != nil {
		return Facts{}, err
	}
	kb, _ := strconv.Atoi(strings.TrimSuffix(FromProc("meminfo", "MemTotal"), " kB"))
	f := Facts{
		Date: time.Now().Format(time.DateOnly), Getwork: getwork, Go: language, System: runtime.GOOS + "/" + runtime.GOARCH,
		Processor: FromProc("cpuinfo", "model name"), Cores: runtime.NumCPU(), MemoryMB: kb >> 10, Settings: map[string]string{},
		SameMachine: e.ServerPID != 0, Rounds: e.Rounds, Quick: e.Quick,
	}
	conn, err := e.Connect(ctx)
	if err != nil {
		return f, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `select split_part(version(), ' on ', 1)`).Scan(&f.PostgreSQL)
	for _, name := range telling {
		var value string
		err = errors.Join(err, conn.QueryRow(ctx, `select current_setting($1)`, name).Scan(&value))
		f.Settings[name] = value
	}
	if err != nil {
		return f, fmt.Errorf("read the server's settings: %w", err)
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(text), " ")
		f.Load, _ = strconv.ParseFloat(first, 64)
	}
	if f.FdatasyncMs, err = fdatasync(os.TempDir()); err != nil {
		return f, fmt.Errorf("time the disk: %w", err)
	}
	return f, nil
}

// builtFrom returns a getwork's version with the commit that it was built from, and the version of Go.
func builtFrom(ctx context.Context, binary string) (version, language string, err error) {
	out, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return "", "", fmt.Errorf("ask %s for its version: %w", binary, err)
	}
	words := strings.Fields(string(out)) // the last is the system
	if len(words) < 4 {
		return "", "", fmt.Errorf("%s says of its version %q: name an executable of getwork", binary, out)
	}
	return strings.Join(words[:len(words)-2], " "), words[len(words)-2], nil
}

// fdatasync returns how long a folder's disk takes to keep 8 KiB, in ms. It overwrites a file of full size, as
// PostgreSQL writes its log.
func fdatasync(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "getwork-bench-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const pages, page = 200, 8 << 10
	if _, err := f.Write(make([]byte, pages*page)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	var times []float64
	data := []byte(strings.Repeat("getwork ", page/8))
	for i := range pages {
		began := time.Now()
		if _, err := f.WriteAt(data, int64(i*page)); err != nil {
			return 0, err
		}
		if err := syncData(f); err != nil {
			return 0, err
		}
		times = append(times, stage.Millis(time.Since(began)))
	}
	return Quantile(times, 0.5), nil
}

// FromProc returns a value from a file of /proc: the rest of the first line that begins with the name, or "".
func FromProc(file, name string) string {
	text, err := os.ReadFile(filepath.Join("/proc", file))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if n, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(n) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Lines returns the facts for people.
func (f Facts) Lines() []string {
	machine := fmt.Sprintf("%d cores", f.Cores)
	if f.Processor != "" {
		machine += " of " + f.Processor
	}
	if f.MemoryMB > 0 {
		machine += fmt.Sprintf(", %d GiB of memory", (f.MemoryMB+512)>>10)
	}
	where := "the given one, not known to be on this machine"
	switch {
	case f.Private:
		where = "private, on this machine"
	case f.SameMachine:
		where = "the given one, on this machine"
	}
	var settings []string
	for _, name := range telling {
		settings = append(settings, name+" "+f.Settings[name])
	}
	rounds := fmt.Sprintf("%d rounds", f.Rounds)
	if f.Quick {
		rounds += ", with small numbers: not fit to be quoted"
	}
	return []string{
		fmt.Sprintf("%s: %s; %s", f.Date, f.Command, rounds),
		fmt.Sprintf("%s, %s, %s", f.Getwork, f.Go, f.System),
		fmt.Sprintf("%s; fdatasync of 8 KiB in the temporary folder takes %.2f ms; load average before: %.1f", machine, f.FdatasyncMs, f.Load),
		fmt.Sprintf("%s, %s: %s", f.PostgreSQL, where, strings.Join(settings, ", ")),
	}
}
