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
	"github.com/jackc/pgx/v5"

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
func testEnv(t *testing.T) *Env {
	t.Helper()
	schematest.Long(t)
	return &Env{Binary: cluster.Binary(t), DatabaseURL: schematest.Empty(t), ServerPID: schematest.Server(t).PID(), Rounds: 1, Quick: true, Log: t.Logf}
}

// taken returns the figures to which one round of a measurement has given values.
func taken(t *testing.T, figures []*Figure, take func(r *rounds) error) []*Figure {
	t.Helper()
	if _, err := cputime.Process(os.Getpid()); errors.Is(err, cputime.ErrUnknown) {
		t.Skip(err)
	}
	if err := take(&rounds{Env: testEnv(t), figures: figures}); err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		if len(f.Values) != 1 || f.Limit != nil && (len(f.Limit.Values) != 1 || f.Limit.Values[0] <= 0) {
			t.Errorf("figure %+v with the limit %+v", f, f.Limit)
		}
	}
	return figures
}

// The keys are the same in every release; each limit follows its figure.
func TestKeys(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, m := range All {
		for _, f := range m.figures(&Env{}) {
			key := f.Key
			if f.Limit != nil {
				key += " " + f.Limit.Key
			}
			if m.For != ForWrite {
				keys = append(keys, key)
			}
		}
	}
	want := []string{
		"clicks_64 limit_five_statements", "clicks_64_steady", "clicks_64_waited", "clicks_64_longest", "clicks_64_cpu_database", "clicks_64_cpu_node",
		"clicks_256 limit_five_statements", "clicks_256_steady", "clicks_256_waited", "clicks_256_longest", "clicks_256_cpu_database", "clicks_256_cpu_node",
		"limit_one_statement", "limit_set_based",
		"idle_click_p50 limit_two_commits_p50", "idle_click_p99 limit_two_commits_p99", "bare_post_p50",
		"push_p50 limit_notify_p50", "push_p99",
		"busy_sleep_p50", "busy_sleep_p99 limit_busy_sleep", "busy_compute_p50", "busy_compute_p99 limit_busy_compute",
		"history_cpu limit_history_cpu", "history_clicks limit_history_clicks",
		"waiting_1 waiting_limit", "waiting_3 waiting_limit", "memory memory_raw", "memory_after",
		"idle_node", "idle_database", "listeners listeners_none", "wrap limit_wrap", "wrap_many limit_wrap_many",
		"quick_clicks quick_limit_clicks", "quick_cpu_database", "quick_cpu_node",
		"quick_idle_click_p50 quick_limit_two_commits_p50", "quick_idle_click_p99 quick_limit_two_commits_p99", "quick_bare_post_p50",
		"quick_push_p50 quick_limit_notify_p50", "quick_push_p99",
		"identity_session_rate", "identity_session_rate_noise", "identity_session_cpu_node", "identity_session_cpu_node_noise",
		"identity_session_cpu_database", "identity_session_cpu_database_noise",
		"identity_token_rate", "identity_token_rate_noise", "identity_token_cpu_node", "identity_token_cpu_node_noise",
		"identity_token_cpu_database", "identity_token_cpu_database_noise",
		"query_login_rate", "query_login_rate_noise", "query_login_cpu_database", "query_login_cpu_database_noise",
		"query_login_cpu_node", "query_login_cpu_node_noise", "query_login_list", "query_login_list_noise", "query_login_compute", "query_login_compute_noise",
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
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("%v of %v is %v, want %v", c.q, c.values, got, c.want)
		}
	}
}

// A figure without a value is left out, and so is a limit, with the goal that is a ratio to it.
func TestRunLeavesOut(t *testing.T) {
	t.Parallel()
	m := Measurement{
		figures: func(*Env) []*Figure {
			return []*Figure{{Key: "a", Limit: &Figure{Key: "b"}, Goal: atMost(2)}, {Key: "c"}, {Key: "d", Limit: &Figure{Key: "e"}, Goal: below(2)}}
		},
		take: func(_ context.Context, r *rounds) error {
			for range r.each() {
				r.add("a", 1)
				r.add("d", 1)
				r.add("e", 2)
			}
			return nil
		},
	}
	figures, err := m.Run(t.Context(), &Env{Rounds: 2})
	want := []*Figure{{Key: "a", Values: []float64{1, 1}}, {Key: "d", Values: []float64{1, 1}, Limit: &Figure{Key: "e", Values: []float64{2, 2}}, Goal: below(2)}}
	if diff := cmp.Diff(want, figures); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// schemasOf returns the schemas of a bench that exist.
func schemasOf(t *testing.T, e *Env) []string {
	t.Helper()
	conn, err := e.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select nspname::text from pg_namespace where starts_with(nspname, $1)`, schemaPrefix)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Ctrl-C ends the context that everything was made with; nodes and schema are removed all the same.
func TestLeaveAfterCancel(t *testing.T) {
	t.Parallel()
	e := testEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	var pid int
	err := e.on(ctx, 2, func(s *stage) error {
		pid = s.nodes[0].PID()
		if pid == s.nodes[1].PID() || s.nodes[0].URL == s.nodes[1].URL {
			t.Error("the two nodes are one")
		}
		if before := schemasOf(t, e); len(before) != 1 {
			t.Errorf("there are the schemas %v", before)
		}
		cancel()
		return s.conn.Ping(ctx)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if _, err := cputime.Process(pid); err == nil {
		t.Errorf("the node %d still runs", pid)
	}
	if left := schemasOf(t, e); len(left) > 0 {
		t.Errorf("schemas are left behind: %v", left)
	}
}

func TestNodeThatCanNotStart(t *testing.T) {
	t.Parallel()
	err := testEnv(t).on(t.Context(), 0, func(s *stage) error { return s.start(t.Context(), 1, "--auth", "nonsense") })
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error is %v, without the node's output", err)
	}
}

// TestCheckFinds breaks the checked promises one after the other.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const task = "checked"
	err := testEnv(t).on(ctx, 1, func(s *stage) error {
		if err := s.shelf(ctx, task, 100); err != nil {
			return err
		}
		if _, err := s.run(ctx, ctx, load{task: task, users: 2, most: 5}); err != nil {
			return err
		}
		if err := s.check(ctx, task); err != nil {
			t.Errorf("nothing is wrong, and the check says: %v", err)
		}
		items := slices.Clone(s.given[task])
		finds := func(what string, given ...int64) {
			t.Helper()
			s.given[task] = given
			if err := s.check(ctx, task); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("the check says %v, want %q", err, what)
			}
		}
		exec := func(statement string) {
			t.Helper()
			if err := s.exec(ctx, "break a promise", []string{statement}); err != nil {
				t.Fatal(err)
			}
		}
		finds("twice", append(slices.Clone(items), items[4])...)
		finds("or others", slices.Clone(items[1:])...)
		finds("or others", append(slices.Clone(items[1:]), 99)...)
		exec(`update getwork.work set rank = 19 - rank`)
		finds("went past", slices.Clone(items)...)
		exec(`update getwork.work set rank = 19 - rank`)
		exec(`insert into getwork.work_requested (task_id, user_name, wanted, requested) select min(id), 'forgotten', 1, 1 from getwork.task`)
		finds("never answered", slices.Clone(items)...)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTakeItems(t *testing.T) {
	t.Parallel()
	before := []int64{7}
	const good = `{"id":"5","state":"assigned","work":[{"item":"8","details":{}},{"item":"9","details":{}}]}`
	if items, err := takeItems(before, []byte(good), 2); err != nil || !slices.Equal(items, []int64{7, 8, 9}) {
		t.Errorf("a good answer is read as %v, %v", items, err)
	}
	for name, body := range map[string]string{
		"another state":   strings.ReplaceAll(good, "assigned", "partial"),
		"too few":         strings.Replace(good, `{"item":"8","details":{}},`, "", 1),
		"an unknown item": strings.Replace(good, `"8"`, `"eight"`, 1),
	} {
		if _, err := takeItems(before, []byte(body), 2); err == nil {
			t.Errorf("%s: it is accepted as a good answer", name)
		}
	}
	if id, err := idOf([]byte(`{"type":"request","request":` + good + `}`)); id != 5 || err != nil {
		t.Errorf("the id is read as %d, %v", id, err)
	}
}

// Users are spread over the nodes, some of which only listen, and all that they get is checked.
func TestFreshClicks(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	l := freshLoad{users: 4, nodes: 2, others: 1, items: 30_000, window: time.Second}
	if c, err := testEnv(t).freshClicks(t.Context(), l); err != nil || c.rate <= 0 || c.database <= 0 || c.nodes <= 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestShelfCost(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	if c, err := testEnv(t).shelfCost(t.Context(), 2000); err != nil || c.database <= 0 || c.nodes <= 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// Clicks during a run are told from those while no run was under way, and from those close to one.
func TestBusyCount(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	ended := at(12)
	out := &outcome{clicks: slices.Repeat([]answered{{at(0.5), 0}}, 50)}
	for s, took := range map[float64]time.Duration{5: 1e6, 9.8: 9e6, 11: 2e6, 12.2: 9e6, 20: 1e6} {
		out.clicks = append(out.clicks, answered{at(s), took})
	}
	k := &busyKind{rounds: &rounds{Env: &Env{}, figures: busyFigures(nil)}, key: "busy_sleep"}
	k.count(out, []run{{Started: at(10), Finished: &ended}})
	if during, idle := k.figure("busy_sleep_p99"), k.figure("limit_busy_sleep"); during.Median() != 2 || idle.Median() != 1 {
		t.Errorf("during a run clicks took %v ms, else %v", during.Values, idle.Values)
	}
	k.count(out, nil)
	if note := k.figure("busy_sleep_p50").Note; !strings.Contains(note, "in 1 rounds") {
		t.Errorf("the note is %q", note)
	}
}

// The ratio of both pairs tells a program that costs a tenth more from noise.
func TestABBA(t *testing.T) {
	t.Parallel()
	r := &rounds{Env: &Env{}, figures: againstFigures(nil)}
	const key = "against_64_cpu_node"
	r.addABBA(key, 110, 100, 100, 110)
	r.addABBA(key, 0, 100, 100, 110) // unknown
	if f := r.figure(key); len(f.Values) != 1 || legible(f.Median()) != "1.10" {
		t.Errorf("the ratios are %v, want one of 1.10", f.Values)
	}
	if f := r.figure(key + "_noise"); len(f.Values) != 2 || f.Median() != 1 {
		t.Errorf("the noise is %v, want 1 twice", f.Values)
	}
	for _, c := range []struct {
		b, b2 float64
		want  Verdict
	}{{100, 100, GoalNotMet}, {80, 120, WithinNoise}} {
		r := &rounds{Env: &Env{}, figures: againstFigures(nil)}
		r.addABBA(key, 110, c.b, c.b2, 110)
		if verdict, noise, _ := (&Report{}).Verdict(r.figure(key)); verdict != c.want {
			t.Errorf("beside a program that takes %v and %v: %v, with a noise of %v", c.b, c.b2, verdict, noise)
		}
	}
}

// --quick measures each figure beside its limit, begins no round for which there is no time, and leaves nothing behind.
func TestQuick(t *testing.T) {
	t.Parallel()
	var e *Env
	figures := taken(t, quickFigures(nil), func(r *rounds) error {
		e, r.Rounds = r.Env, 50
		return quickOf(t.Context(), r, quickSizes{users: 4, items: 30_000, window: time.Second, single: 10, pushes: 5, within: time.Nanosecond})
	})
	for _, f := range figures {
		if f.Median() <= 0 {
			t.Errorf("%s: %v", f.Key, f.Values)
		}
	}
	if note := figures[0].Note; note != "only 1 of 50 rounds, since the time was up" {
		t.Errorf("the note is %q", note)
	}
	if left := schemasOf(t, e); len(left) > 0 {
		t.Errorf("schemas are left behind: %v", left)
	}
}

// A comparison names the program that failed.
func TestAgainstNoProgram(t *testing.T) {
	t.Parallel()
	r := &rounds{Env: &Env{Binary: os.Args[0], Against: "/nowhere/getwork", Rounds: 1, Quick: true, DatabaseURL: "postgres://127.0.0.1:1/none"}}
	if err := against(t.Context(), r); err == nil || !strings.Contains(err.Error(), os.Args[0]) {
		t.Errorf("the error is %v, want one that names the program", err)
	}
}
