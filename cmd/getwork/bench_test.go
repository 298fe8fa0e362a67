package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/command"
	"getwork/schema/schematest"
)

// benchSchemas lists the schemas that a bench has made in a database.
func benchSchemas(t *testing.T, url string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select nspname::text from pg_namespace where nspname like 'getwork\_bench\_%'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestBench(t *testing.T) {
	schematest.Long(t)
	url := schematest.Empty(t)
	measure := exec.CommandContext(t.Context(), cluster.Binary(t), "bench", "--quick", "--rounds", "1", "--only", "idle-click", "--json", "--database-url", url)
	var errs bytes.Buffer
	measure.Stderr = &errs
	out, err := measure.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if left := benchSchemas(t, url); len(left) > 0 {
		t.Errorf("it leaves %v behind", left)
	}
	var report struct {
		Facts struct {
			Command, Getwork, PostgreSQL string
			Cores                        int
		}
		Figures []struct {
			Key     string
			Values  []float64
			Limit   *struct{ Values []float64 }
			Verdict string
			Noise   float64
		}
		Noise []struct{ Values []float64 }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	if f := report.Facts; f.Cores == 0 || !strings.HasPrefix(f.PostgreSQL, "PostgreSQL ") || !strings.HasPrefix(f.Getwork, "getwork ") || strings.Contains(f.Getwork, " go1") || strings.Contains(f.Command, "://") {
		t.Errorf("the facts are %+v", f)
	}
	if len(report.Figures) != 3 {
		t.Fatalf("there are %d figures", len(report.Figures))
	}
	p50 := report.Figures[0]
	if p50.Key != "idle_click_p50" || len(p50.Values) != 1 || p50.Values[0] <= 0 || p50.Limit == nil || len(p50.Limit.Values) != 1 || p50.Verdict == "" || p50.Noise <= 0 {
		t.Errorf("the first figure is %+v", p50)
	}
	// With one round the noise is how much the references differ.
	for _, reference := range report.Noise {
		if len(reference.Values) != 2 || reference.Values[0] <= 0 || reference.Values[1] <= 0 {
			t.Errorf("the references are %+v", report.Noise)
		}
	}
	if len(report.Noise) != 3 {
		t.Errorf("the references are %+v", report.Noise)
	}
}

// The flags say what is measured, and whether the machine's noise is.
func TestBenchWants(t *testing.T) {
	usual := []string{"clicks", "idle-click", "push", "bulk", "nodes"}
	for name, c := range map[string]struct {
		flags  benchCmd
		want   []string
		noise  bool
		rounds int
	}{
		"nothing":          {want: usual, noise: true, rounds: 3},
		"quick":            {flags: benchCmd{Quick: true}, want: []string{"quick"}, rounds: 3},
		"small numbers":    {flags: benchCmd{Quick: true, Flags: bench.Flags{Only: []string{"push", "quick"}}}, want: []string{"push", "quick"}, noise: true, rounds: 3},
		"quick and rounds": {flags: benchCmd{Quick: true, Flags: bench.Flags{Rounds: new(1)}}, want: []string{"quick"}, rounds: 3}, // the session has the flag
		"against":          {flags: benchCmd{Against: os.Args[0]}, want: []string{"against"}, rounds: 5},
		"quickly against":  {flags: benchCmd{Against: os.Args[0], Quick: true}, want: []string{"against"}, rounds: 5},
	} {
		r, all, err := c.flags.run()
		var got []string
		for _, m := range all {
			got = append(got, m.Name)
		}
		if err != nil || !slices.Equal(got, c.want) || r.Noise != c.noise || r.Quick != c.flags.Quick || r.Env.Rounds != c.rounds {
			t.Errorf("%s: %v with noise %v in %d rounds, want %v with %v in %d (%v)", name, got, r.Noise, r.Env.Rounds, c.want, c.noise, c.rounds, err)
		}
	}
}

// TestBenchInterrupted: a bench that is interrupted leaves the database as it was.
func TestBenchInterrupted(t *testing.T) {
	schematest.Thorough(t)
	url := schematest.Empty(t)
	bench := exec.CommandContext(t.Context(), cluster.Binary(t), "bench", "--only", "idle-click", "--database-url", url)
	errs, err := bench.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bench.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "round 1 of 3") {
			for len(benchSchemas(t, url)) == 0 {
				<-time.After(20 * time.Millisecond)
			}
			if err := bench.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := bench.Wait(); cluster.Exit(err) != command.ExitFailed || !strings.Contains(said.String(), "getwork: interrupted") {
		t.Errorf("it ends with %v, and says\n%s", err, said.String())
	}
	if left := benchSchemas(t, url); len(left) > 0 {
		t.Errorf("it leaves %v behind", left)
	}
}

func TestBenchUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--rounds must be from 1": {"--rounds", "0"},
		"idle-click":              {"--only", "clicks,nonsense"},
		"leave out --only":        {"--only", "clicks", "--against", os.Args[0]},
		"name an executable":      {"--against", filepath.Join(t.TempDir(), "getwork")},
	} {
		var out, errs bytes.Buffer
		if status := run(append([]string{"bench"}, args...), &out, &errs); status != command.ExitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: status %d, %s", args, status, errs.String())
		}
	}
}
