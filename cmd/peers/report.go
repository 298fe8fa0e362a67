package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

// report is the command's output.
type report struct {
	Facts   facts     `json:"facts"`
	Notes   []string  `json:"notes,omitempty"`
	Figures []*figure `json:"figures"`
}

// figure is the same as in getwork's bench.
type figure struct {
	Key    string    `json:"key"`
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"` // one per round; the median counts
}

// facts describe the machine, the server and the run.
type facts struct {
	Date       string            `json:"date"`
	System     string            `json:"system"`
	Cores      int               `json:"cores"`
	PostgreSQL string            `json:"postgresql"`
	Settings   map[string]string `json:"settings"`
	Versions   map[string]string `json:"versions"`
	Rounds     int               `json:"rounds"`
	Seconds    float64           `json:"seconds"`
}

const selectSettings = `
select name, current_setting(name) from pg_settings
where name in ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_connections',
  'max_wal_size', 'wal_level', 'jit', 'track_commit_timestamp', 'shared_preload_libraries')`

func (f *facts) fill(ctx context.Context, conn *pgx.Conn) error {
	f.Date = time.Now().UTC().Format(time.RFC3339)
	f.System = runtime.GOOS + "/" + runtime.GOARCH
	f.Cores = runtime.NumCPU()
	f.Settings = map[string]string{}
	rows, err := conn.Query(ctx, selectSettings)
	if err != nil {
		return fmt.Errorf("read the server's settings: %w", err)
	}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { f.Settings[name] = value; return nil }); err != nil {
		return fmt.Errorf("read the server's settings: %w", err)
	}
	f.PostgreSQL = f.Settings["server_version"]
	delete(f.Settings, "server_version")
	return nil
}

// The units.
const (
	perSecond   = "jobs/s"
	millis      = "ms"
	microsPer   = "µs/job"
	millisPer   = "ms/s"
	clientCPU   = "_client_cpu"
	databaseCPU = "_database_cpu"
)

// add adds one round's outcome of a measurement.
func (r *report) add(p peer, m measurement, done answer, clock clocks, database bool) {
	key, name := p.key+"_"+m.key, p.name+": "+m.name
	switch m.kind {
	case rate:
		r.figure(key, name, perSecond, float64(done.Jobs)/done.Seconds)
		each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(done.Jobs) }
		r.cpu(key, name, microsPer, clock, database, each)
	case latency:
		r.figure(key+"_p50", name+", p50", millis, percentile(done.Latencies, 50))
		r.figure(key+"_p99", name+", p99", millis, percentile(done.Latencies, 99))
	case idle:
		each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 / done.Seconds }
		r.cpu(key, name, millisPer, clock, database, each)
	}
}

func (r *report) cpu(key, name, unit string, clock clocks, database bool, each func(time.Duration) float64) {
	if clock.known {
		r.figure(key+clientCPU, name+", client's CPU", unit, each(clock.client))
	}
	if clock.known && database {
		r.figure(key+databaseCPU, name+", database's CPU", unit, each(clock.database))
	}
}

func (r *report) figure(key, name, unit string, value float64) {
	i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Key == key })
	if i < 0 {
		r.Figures = append(r.Figures, &figure{Key: key, Name: name, Unit: unit})
		i = len(r.Figures) - 1
	}
	r.Figures[i].Values = append(r.Figures[i].Values, value)
}

// table prints a report for people.
func (r *report) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "what\tmedian\trange\tunit\tCPU of client, database\n")
	for _, f := range r.Figures {
		if f.Unit != microsPer {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.Name, digits(f.median()), f.span(), f.Unit, r.cpuOf(f.Key))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(out, r.footer())
	return err
}

func (r *report) footer() string {
	f := r.Facts
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, %s, %d cores, medians of %d rounds, %gs each\n", f.Date, f.System, f.Cores, f.Rounds, f.Seconds)
	fmt.Fprintf(&b, "PostgreSQL %s: %s\n", f.PostgreSQL, list(f.Settings, "="))
	fmt.Fprintf(&b, "%s\n", list(f.Versions, " "))
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "%s\n", note)
	}
	return b.String()
}

func list(m map[string]string, between string) string {
	var entries []string
	for key, value := range m {
		entries = append(entries, key+between+value)
	}
	slices.Sort(entries)
	return strings.Join(entries, ", ")
}

// cpuOf returns the CPU that belongs to a rate.
func (r *report) cpuOf(key string) string {
	var parts []string
	for _, f := range r.Figures {
		if f.Key == key+clientCPU || f.Key == key+databaseCPU {
			parts = append(parts, digits(f.median()))
		}
	}
	if parts == nil {
		return ""
	}
	return strings.Join(parts, " + ") + " " + microsPer
}

// span returns the range of the values.
func (f *figure) span() string {
	return digits(slices.Min(f.Values)) + "-" + digits(slices.Max(f.Values))
}

// median returns the median of the values.
func (f *figure) median() float64 {
	sorted := slices.Sorted(slices.Values(f.Values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// digits formats a number with its significant digits.
func digits(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
