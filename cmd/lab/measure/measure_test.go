package measure

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/cputime"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) {
	if asked, err := RawPeer(os.Args[1:]); err != nil {
		panic(err)
	} else if asked {
		return
	}
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

// taken returns the figures of a measurement, each of which has the value of one round.
func taken(t *testing.T, m bench.Measurement) []*bench.Figure {
	t.Helper()
	if _, err := cputime.Process(os.Getpid()); errors.Is(err, cputime.ErrUnknown) {
		t.Skip(err)
	}
	e := testEnv(t)
	figures, err := m.Run(t.Context(), e)
	if err != nil || len(figures) != len(m.Figures(e)) {
		t.Fatalf("%d figures, %v", len(figures), err)
	}
	for i, want := range m.Figures(e) {
		f := figures[i]
		if f.Key != want.Key || len(f.Values) != 1 || want.Limit != nil && (f.Limit == nil || len(f.Limit.Values) != 1 || f.Limit.Values[0] <= 0) {
			t.Errorf("figure %+v with the limit %+v", f, f.Limit)
		}
	}
	return figures
}

// The keys are the same in every release; each limit follows its figure.
func TestKeys(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, m := range All[len(bench.All):] {
		for _, f := range m.Figures(&stage.Env{}) {
			key := f.Key
			if f.Limit != nil {
				key += " " + f.Limit.Key
			}
			if m.Name != "growth" {
				keys = append(keys, key)
			}
		}
	}
	want := []string{
		"busy_sleep_p50", "busy_sleep_p99 limit_busy_sleep", "busy_compute_p50", "busy_compute_p99 limit_busy_compute",
		"history_cpu limit_history_cpu", "history_clicks limit_history_clicks",
		"waiting_1 waiting_limit", "waiting_3 waiting_limit", "memory memory_raw", "memory_after",
		"idle_node", "idle_database", "listeners listeners_none", "wrap limit_wrap", "wrap_many limit_wrap_many",
		"rules_cpu limit_rules_cpu", "next_cpu limit_next_cpu", "next_waiting",
		"identity_session_rate", "identity_session_rate_noise", "identity_session_cpu_node", "identity_session_cpu_node_noise",
		"identity_session_cpu_database", "identity_session_cpu_database_noise",
		"identity_token_rate", "identity_token_rate_noise", "identity_token_cpu_node", "identity_token_cpu_node_noise",
		"identity_token_cpu_database", "identity_token_cpu_database_noise",
		"query_login_rate", "query_login_rate_noise", "query_login_cpu_database", "query_login_cpu_database_noise",
		"query_login_cpu_node", "query_login_cpu_node_noise", "query_login_list", "query_login_list_noise", "query_login_compute", "query_login_compute_noise",
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
}

// Limits, absences and clicks over all tasks are measured, and all clicks answered.
func TestRules(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for _, m := range All {
		if m.Name == "rules" {
			taken(t, m)
		}
	}
}

func TestShelfCost(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	if c, err := shelfCost(t.Context(), testEnv(t), 2000); err != nil || c.Database <= 0 || c.Nodes <= 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// Clicks during a run are distinguished from those while no run was under way, and from those close to one.
func TestBusyCount(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	ended := at(12)
	out := &stage.Outcome{Clicks: slices.Repeat([]stage.Answered{{At: at(0.5)}}, 50)}
	for s, took := range map[float64]time.Duration{5: 1e6, 9.8: 9e6, 11: 2e6, 12.2: 9e6, 20: 1e6} {
		out.Clicks = append(out.Clicks, stage.Answered{At: at(s), Took: took})
	}
	k := &busyKind{Rounds: &bench.Rounds{Env: &stage.Env{}, Figures: busyFigures(nil)}, key: "busy_sleep"}
	k.count(out, []stage.Run{{Started: at(10), Finished: &ended}})
	if during, idle := k.Figure("busy_sleep_p99"), k.Figure("limit_busy_sleep"); during.Median() != 2 || idle.Median() != 1 {
		t.Errorf("during a run clicks took %v ms, else %v", during.Values, idle.Values)
	}
	k.count(out, nil)
	if note := k.Figure("busy_sleep_p50").Note; !strings.Contains(note, "in 1 rounds") {
		t.Errorf("the note is %q", note)
	}
}
