package bench

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/bench/stage"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/cputime"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) {
	code := schematest.Main(m)
	cluster.Clean()
	os.Exit(code)
}

// testEnv returns an Env with a database of this test's own, on a server whose processes are known.
func testEnv(t *testing.T) *stage.Env {
	t.Helper()
	schematest.Long(t)
	return &stage.Env{Binary: cluster.Binary(t), DatabaseURL: schematest.Empty(t), ServerPID: schematest.Server(t).PID(), Rounds: 1, Quick: true, Log: t.Logf}
}

// The keys are the same in every release; each limit follows its figure.
func TestKeys(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, m := range append(slices.Clone(All), Quick, Against("")) {
		for _, f := range m.Figures(&stage.Env{}) {
			key := f.Key
			if f.Limit != nil {
				key += " " + f.Limit.Key
			}
			keys = append(keys, key)
		}
	}
	want := []string{
		"clicks_64 limit_five_statements", "clicks_64_steady", "clicks_64_waited", "clicks_64_longest", "clicks_64_cpu_database", "clicks_64_cpu_node",
		"clicks_256 limit_five_statements", "clicks_256_steady", "clicks_256_waited", "clicks_256_longest", "clicks_256_cpu_database", "clicks_256_cpu_node",
		"limit_one_statement", "limit_set_based",
		"idle_click_p50 limit_two_commits_p50", "idle_click_p99 limit_two_commits_p99", "bare_post_p50",
		"push_p50 limit_notify_p50", "push_p99",
		"bulk_rate", "bulk_cpu", "bulk_cpu_database", "bulk_cpu_node",
		"bulk_agent_rate", "bulk_agent_cpu_database", "bulk_agent_cpu_node", "bulk_lines_rate", "bulk_lines_cpu_database", "bulk_lines_cpu_node",
		"nodes_1", "nodes_1_cpu_database", "nodes_1_cpu_node", "nodes_12", "nodes_12_cpu_database", "nodes_12_cpu_node",
		"quick_clicks quick_limit_clicks", "quick_cpu_database", "quick_cpu_node",
		"quick_idle_click_p50 quick_limit_two_commits_p50", "quick_idle_click_p99 quick_limit_two_commits_p99", "quick_bare_post_p50",
		"quick_push_p50 quick_limit_notify_p50", "quick_push_p99",
		"against_64_cpu_database", "against_64_cpu_database_noise", "against_64_cpu_node", "against_64_cpu_node_noise",
		"against_256_cpu_database", "against_256_cpu_database_noise", "against_256_cpu_node", "against_256_cpu_node_noise",
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{{nil, 0.5, 0}, {[]float64{7}, 0.99, 7}, {[]float64{3, 1, 2}, 0.5, 2}, {[]float64{4, 1, 2, 3}, 0.5, 2.5}, {[]float64{5, 1, 2, 3, 4}, 0.75, 4}, {[]float64{1, 2}, 1, 2}} {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("%v of %v is %v, want %v", c.q, c.values, got, c.want)
		}
	}
}

// A figure without a value is left out, and so is a limit, with the goal that is a ratio to it.
func TestRunLeavesOut(t *testing.T) {
	t.Parallel()
	m := Measurement{
		Figures: func(*stage.Env) []*Figure {
			return []*Figure{{Key: "a", Limit: &Figure{Key: "b"}, Goal: AtMost(2)}, {Key: "c"}, {Key: "d", Limit: &Figure{Key: "e"}, Goal: Below(2)}}
		},
		Take: func(_ context.Context, r *Rounds) error {
			for range r.Each() {
				r.Add("a", 1)
				r.Add("d", 1)
				r.Add("e", 2)
			}
			return nil
		},
	}
	figures, err := m.Run(t.Context(), &stage.Env{Rounds: 2})
	want := []*Figure{{Key: "a", Values: []float64{1, 1}}, {Key: "d", Values: []float64{1, 1}, Limit: &Figure{Key: "e", Values: []float64{2, 2}}, Goal: Below(2)}}
	if diff := cmp.Diff(want, figures); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// --quick measures each figure beside its limit, begins no round for which there is no time, and leaves nothing behind.
func TestQuick(t *testing.T) {
	t.Parallel()
	if _, err := cputime.Process(os.Getpid()); errors.Is(err, cputime.ErrUnknown) {
		t.Skip(err)
	}
	e := testEnv(t)
	e.Rounds = 50
	m := Measurement{Figures: quickFigures, Take: func(ctx context.Context, r *Rounds) error {
		return quickOf(ctx, r, quickSizes{users: 4, items: 30_000, window: time.Second, single: 10, pushes: 5, within: time.Nanosecond})
	}}
	figures, err := m.Run(t.Context(), e)
	if err != nil || len(figures) != len(quickFigures(e)) {
		t.Fatalf("%d figures, %v", len(figures), err)
	}
	for i, want := range quickFigures(e) {
		f := figures[i]
		if f.Key != want.Key || len(f.Values) != 1 || f.Values[0] <= 0 || want.Limit != nil && (f.Limit == nil || len(f.Limit.Values) != 1 || f.Limit.Values[0] <= 0) {
			t.Errorf("figure %+v with the limit %+v", f, f.Limit)
		}
	}
	if note := figures[0].Note; note != "only 1 of 50 rounds, since the time was up" {
		t.Errorf("the note is %q", note)
	}
	conn, err := e.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var left int
	if err := conn.QueryRow(t.Context(), `select count(*) from pg_namespace where starts_with(nspname, $1)`, stage.SchemaPrefix).Scan(&left); err != nil || left > 0 {
		t.Errorf("%d schemas are left behind (%v)", left, err)
	}
}

// The ratio of both pairs, taken in the order ABBA, separates a program that costs a tenth more from noise.
func TestCompare(t *testing.T) {
	t.Parallel()
	parts := againstParts(64)[1:]
	r := &Rounds{}
	take := func(a, b, b2, a2 float64) (ratio, noise *Figure) {
		order := ""
		as := func(name string, costs ...float64) func(context.Context) (stage.Cost, error) {
			return func(context.Context) (stage.Cost, error) {
				order += name
				cost := stage.Cost{Nodes: costs[0]}
				costs = costs[1:]
				return cost, nil
			}
		}
		if err := Compare(t.Context(), r, parts, as("A", a, a2), as("B", b, b2)); err != nil || order != "ABBA" {
			t.Errorf("the order is %s (%v)", order, err)
		}
		return r.Figures[0], r.Figures[1]
	}
	for _, c := range []struct {
		a, b, b2, a2 float64
		want         Verdict
	}{{110, 100, 100, 110, GoalNotMet}, {110, 80, 120, 110, WithinNoise}} {
		r = &Rounds{Env: &stage.Env{}, Figures: Ratios(parts)}
		ratio, noise := take(c.a, c.b, c.b2, c.a2)
		if verdict, share, _ := (&Report{}).Verdict(ratio); verdict != c.want || legible(ratio.Median()) != "1.10" || len(noise.Values) != 2 {
			t.Errorf("%+v: %v, with the ratios %v and a noise of %v, %v", c, verdict, ratio.Values, share, noise.Values)
		}
		if take(0, 100, 100, 110); len(ratio.Values) != 1 || len(noise.Values) != 2 { // what is unknown
			t.Errorf("a cost that is unknown makes the ratios %v and the noise %v", ratio.Values, noise.Values)
		}
	}
}

// If a measurement fails, the others are still made, and the error names it.
func TestSessionGoesOn(t *testing.T) {
	t.Parallel()
	e := testEnv(t)
	named := func(name string, take func(r *Rounds) error) Measurement {
		return Measurement{Name: name, Figures: func(*stage.Env) []*Figure { return []*Figure{{Key: name}} }, Take: func(_ context.Context, r *Rounds) error { return take(r) }}
	}
	s := Session{Flags: Flags{DatabaseURL: e.DatabaseURL, Rounds: new(2)}, Env: *e, Command: "test"}
	var out strings.Builder
	report, err := s.Report(t.Context(), []Measurement{
		named("broken", func(*Rounds) error { return errors.New("out of luck") }),
		named("whole", func(r *Rounds) error {
			for range r.Each() {
				r.Add("whole", 1)
			}
			return nil
		}),
	}, &out)
	if err == nil || err.Error() != "broken: out of luck" {
		t.Errorf("the error is %v", err)
	}
	if len(report.Figures) != 1 || len(report.Figures[0].Values) != 2 || report.Facts.Command != "test --database-url URL --rounds 2" {
		t.Errorf("the report is %s", out.String())
	}
}

// A comparison names the program that failed.
func TestAgainstNoProgram(t *testing.T) {
	t.Parallel()
	r := &Rounds{Env: &stage.Env{Binary: os.Args[0], Rounds: 1, Quick: true, DatabaseURL: "postgres://127.0.0.1:1/none"}}
	if err := against(t.Context(), r, "/nowhere/getwork"); err == nil || !strings.Contains(err.Error(), os.Args[0]) {
		t.Errorf("the error is %v, want one that names the program", err)
	}
}
